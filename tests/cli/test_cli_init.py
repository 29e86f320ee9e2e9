"""`envport init` makes a package that is served, checked and tested at once."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from command_line import TOKEN, Served, environment, envport, refused, refused_here
from images import instructions
from patience import patient

from envport import Client

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "gateway/envport/cli/templates"
KINDS = ("game", "mcp", "workspace")
OWN = {
    "game": {"envport.toml", "deep_sea/environment.py"},
    "mcp": {"envport.toml", "tasks.toml", "deep_sea/server.py", "deep_sea/score.py"},
    "workspace": {"envport.toml", "deep_sea/environment.py"},
}
SHARED = {"README.md", "Dockerfile", "pyproject.toml", "deep_sea/__init__.py", "tests/test_deep_sea.py"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One package of each kind, all of the same name."""
    folders: dict[str, Path] = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        done = envport("init", "deep_sea", "--kind", kind, cwd=folder)
        assert done.returncode == 0, done
        folders[kind] = folder / "deep_sea"
    return folders


def files_in(folder: Path) -> set[str]:
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {path for path in found if "cache" not in path}


def its_tests(folder: Path, *words: str) -> str:
    """The last line of its own pytest."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patient(120),
        env=environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_has_these_files_and_nothing_of_the_template_s_name(kind: str, made: dict[str, Path]) -> None:
    folder = made[kind]
    assert files_in(folder) == SHARED | OWN[kind]
    for path in sorted(files_in(folder)):
        assert not re.search(r"my_(game|server|workspace)|My(Game|Server|Workspace)", (folder / path).read_text()), path
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    points = project.get("entry-points", {}).get("envport.environments", {})
    assert points == ({} if kind == "mcp" else {"deep_sea": "deep_sea.environment:DeepSeaEnvironment"})


def test_it_says_what_to_do_next(tmp_path: Path) -> None:
    done = envport("init", "deep_sea", cwd=tmp_path)
    assert "Made deep_sea" in done.stdout
    for words in ("cd deep_sea", "envport check deep_sea", "envport play deep_sea", "envport serve"):
        assert re.search(rf"^  .*{words}$", done.stdout, re.MULTILINE), words
    assert files_in(tmp_path / "deep_sea") == SHARED | OWN["game"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("deep-sea", "letters, digits and '_'"),
        ("../sea", "letters, digits and '_'"),
        ("_sea", "begin with a letter"),
        ("class", "word of Python's own"),
        ("a" * 65, "at most 64"),
        ("json", "a Python module has it"),
        ("envport", "a Python module has it"),
        ("tests", "a Python module has it"),
        ("catch", "an installed environment has it"),
    ],
)
def test_a_name_that_cannot_be_is_refused(name: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert why in refused_here("init", name)
    assert not any(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "sea"
    folder.mkdir()
    (folder / "README.md").write_text("mine")
    assert "the folder sea is not empty" in refused("init", "sea", cwd=tmp_path)
    assert files_in(folder) == {"README.md"}
    assert (folder / "README.md").read_text() == "mine"
    (tmp_path / "wreck").write_text("mine")
    assert "is no folder" in refused("init", "wreck", cwd=tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert "is no folder" in refused("init", "link", cwd=tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "sea").mkdir()
    assert envport("init", "sea", cwd=tmp_path).returncode == 0
    assert (tmp_path / "sea/sea/environment.py").is_file()


def test_what_tools_left_beside_a_template_is_not_copied(made: dict[str, Path]) -> None:
    # Linters and tests of the templates leave such folders there.
    left = TEMPLATES / "game/.tests_cache"
    left.mkdir()
    try:
        (left / "file").write_bytes(b"\xff")
        folder = made["game"].parent
        assert envport("init", "another", cwd=folder).returncode == 0
    finally:
        shutil.rmtree(left)
    assert not (folder / "another/.tests_cache").exists()


def checked(folder: Path) -> None:
    done = envport("check", "deep_sea", cwd=folder)
    assert done.returncode == 0, done
    assert "deep_sea keeps the authoring contract" in done.stdout


def test_a_game_is_checked_and_tested_at_once(made: dict[str, Path]) -> None:
    checked(made["game"])
    assert " passed" in its_tests(made["game"])


@pytest.mark.slow
def test_a_workspace_is_tested_at_once(made: dict[str, Path]) -> None:
    # One of its tests is the check.
    assert " passed" in its_tests(made["workspace"])


@pytest.mark.slow
def test_an_mcp_server_of_one_s_own_is_an_environment_at_once(made: dict[str, Path]) -> None:
    assert its_tests(made["mcp"], "-k", "taken").startswith("1 passed")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mcp", "workspace"])
def test_whatever_starts_processes_is_checked_and_tested_too(kind: str, made: dict[str, Path]) -> None:
    checked(made[kind])
    assert " passed" in its_tests(made[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_the_dockerfile_takes_what_is_there_and_runs_as_no_root(kind: str, made: dict[str, Path]) -> None:
    steps = list(instructions(made[kind] / "Dockerfile"))
    assert steps[0] == ("FROM", "python:3.11-slim")
    copied = [word for what, rest in steps if what == "COPY" for word in rest.split()[:-1]]
    assert {path for path in copied if "*" not in path} <= {*os.listdir(made[kind])}
    needed = {"pyproject.toml", "README.md", "deep_sea"} | ({"envport.toml", "tasks.toml"} if kind == "mcp" else set())
    assert needed <= {*copied}
    order = [what for what, _ in steps]
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert dict(steps)["USER"] not in ("root", "0")
    assert any("bubblewrap" in rest for what, rest in steps if what == "RUN") == (kind != "game")


def test_a_container_serves_with_a_token_and_refuses_to_without(made: dict[str, Path]) -> None:
    steps = dict(instructions(made["game"] / "Dockerfile"))
    start = json.loads(steps["ENTRYPOINT"]) + json.loads(steps["CMD"])
    assert start[:2] == ["envport", "serve"]
    assert "without tokens" in refused(*start[1:], "--port", "0", cwd=made["game"])
    with Served(*start[2:], cwd=made["game"], ENVPORT_TOKEN=TOKEN) as served:
        port = served.url.rpartition(":")[2]
        healthy(steps["HEALTHCHECK"], port)
        with Client(f"http://localhost:{port}", token=TOKEN) as client:
            assert client.open("deep_sea").episode_id


def healthy(instruction: str, port: str) -> None:
    """Ask as the container's health check does, at another port."""
    asked = json.loads(instruction.partition("CMD ")[2].replace(":8000/", f":{port}/"))
    assert asked[0] == "python"
    subprocess.run([sys.executable, *asked[1:]], timeout=patient(30), check=True)


@pytest.mark.slow
def test_the_dockerfile_s_commands_work_in_an_environment_of_their_own(made: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "app"
    shutil.copytree(made["game"], folder)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    subprocess.run([*build, str(ROOT), str(ROOT / "gateway/envport-client")], timeout=patient(300), check=True)
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv/bin"
    steps = list(instructions(folder / "Dockerfile"))
    install = next(rest for what, rest in steps if what == "RUN" and rest.startswith("pip install"))
    shell = {**environment(), "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(install, shell=True, cwd=folder, env=shell, timeout=patient(600), check=True)
    # As in the container, where envport.toml is not: by the entry point.
    (folder / "envport.toml").unlink()
    checked = subprocess.run(
        [programs / "envport", "check", "deep_sea"], cwd=folder, env=shell, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked
    # The installed envport has the templates too.
    for kind in KINDS:
        new = [programs / "envport", "init", f"new_{kind}", "--kind", kind]
        subprocess.run(new, cwd=tmp_path, env=shell, timeout=patient(60), check=True)
        assert len(files_in(tmp_path / f"new_{kind}")) == len(SHARED | OWN[kind])
