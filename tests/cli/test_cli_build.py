"""`envport build` makes a folder that is an image for Docker and a Space: its Dockerfile's steps are done here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from command_line import TOKEN, Served, envport, envport_here, player, refused, text
from images import Image, Started, instructions
from patience import patient
from slow import slow

from envport import Client

HERE = ("--envport", "envport==0.1.0")
# It imports a module beside it and an installed package, and reads a file.
GAME = '''
from pathlib import Path

import anyio
from lines.words import HELLO

from envport import Environment, Step, tool


class Parrot(Environment):
    """Say the word."""

    def __init__(self, file: Path | None = None):
        self.word = file.read_text().strip() if file is not None else HELLO

    def reset(self, *, seed, task):
        return f"Say {self.word}."

    @tool
    async def say(self, word: str) -> Step:
        """Say a word."""
        await anyio.sleep(0)
        return Step("Right." if word == self.word else "No.", reward=float(word == self.word), terminated=True)
'''
PICKY = """
import PIL

try:
    import nowhere
except ImportError:
    nowhere = None
"""
FILE = """
[serve]
port = 9000
max-episodes = 7

[environments.grey]
reference = "./birds/parrot.py:Parrot"
options = { file = "data/word.txt" }
limits = { max-steps = 3 }

[environments.grey.secrets]
KEY = { variable = "GREY_KEY" }
"""


@pytest.fixture
def birds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an environment, its module and its data."""
    base = tmp_path / "birds"
    for path, words in {
        "birds/parrot.py": GAME,
        "birds/left.pyc": "",
        "lines/__init__.py": "",
        "lines/words.py": "HELLO = 'hello'\n",
        "data/word.txt": "lora\n",
        "envport.toml": FILE,
    }.items():
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_text(words)
    monkeypatch.chdir(base)
    monkeypatch.syspath_prepend(str(base))
    for name in ("lines", "lines.words"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv("GREY_KEY", "secret-of-the-bird")
    monkeypatch.delenv("ENVPORT_TOKEN", raising=False)
    return base


def built(*words: str) -> Path:
    """The folder that a command makes, in the current one."""
    done = envport_here("build", *words, "--output", "out")
    assert done.returncode == 0, done.stderr
    return Path.cwd() / "out"


def front_matter(folder: Path) -> dict[str, object]:
    _, front, _ = (folder / "README.md").read_text().split("---\n", 2)
    pairs = (line.partition(": ") for line in front.splitlines())
    return {key: json.loads(value) for key, _, value in pairs}


def played(served: Served, word: str) -> tuple[str, float | None]:
    """An episode that is opened by a client, and played by one of MCP: what it says, and what it earns."""
    url = f"http://localhost:{served.url.rpartition(':')[2]}"
    with Client(url, token=TOKEN) as control:
        (environment,) = control.environments()
        episode = control.open(environment.name, seed=1)
        address = f"{url}/episodes/{episode.episode_id}/mcp"

        async def play() -> str:
            async with player(address, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
                return text(await client.call_tool("say", {"word": word}))

        said = anyio.run(play)
        return said, control.finish(episode.episode_id).reward


def test_an_environment_of_a_file_is_built_started_and_played(birds: Path, tmp_path: Path):
    out = built("grey", *HERE)
    assert {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()} == {
        ".dockerignore",
        "Dockerfile",
        "README.md",
        "birds/parrot.py",
        "data/word.txt",
        "envport.toml",
        "lines/__init__.py",
        "lines/words.py",
        "requirements.txt",
    }
    assert front_matter(out).items() >= {"title": "grey", "sdk": "docker", "app_port": 7860}.items()
    page = (out / "README.md").read_text()
    assert "`GREY_KEY`" in page
    assert "secret-of-the-bird" not in "".join(path.read_text() for path in out.rglob("*") if path.is_file())
    made = (out / "envport.toml").read_text()
    assert "max-episodes = 7" in made
    assert "9000" not in made

    image = Image(out, tmp_path / "image")
    steps = dict(instructions(out / "Dockerfile"))
    assert (steps["EXPOSE"], image.exposed, steps["USER"]) == ("7860", "7860", "user")
    assert "useradd --create-home --uid 1000 user" in (out / "Dockerfile").read_text()
    for host, words in (("", ""), ("ada-grey.hf.space", " --public-url https://ada-grey.hf.space")):
        shown = ["sh", "-c", image.start.replace("exec ", "echo ")]
        said = subprocess.run(shown, capture_output=True, env=image.environ(SPACE_HOST=host), text=True, check=True)
        assert said.stdout.strip().endswith(f"--allowed-host localhost{words}")
    with Started(image, ENVPORT_TOKEN=TOKEN, GREY_KEY="another") as served:
        assert played(served, "lora") == ("Right.", 1.0)
        healthy = [it.replace(":7860/", f":{served.url.rpartition(':')[2]}/") for it in image.health]
        subprocess.run([sys.executable, *healthy[1:]], timeout=patient(30), check=True)
    open_to_all = subprocess.run(
        ["sh", "-c", image.start.replace("7860", "0")],
        cwd=image.folder,
        env=image.environ(GREY_KEY="another"),
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert open_to_all.returncode == 2
    assert "without tokens" in open_to_all.stderr


@pytest.mark.parametrize(
    ("reference", "requirements", "packages"),
    [
        ("counter", ["envport==0.1.0"], ""),
        *slow([("wordle", ["envport[textarena]==0.1.0"], "")]),
        ("lake=gymnasium:FrozenLake-v1?render=both", ["envport[gymnasium,images]==0.1.0"], ""),
        ("workspace", ["envport==0.1.0"], "bubblewrap"),
    ],
)
def test_it_installs_the_extras_and_packages_that_are_needed(
    reference: str, requirements: list[str], packages: str, birds: Path
):
    if ":" in reference or reference == "wordle":
        pytest.importorskip("gymnasium" if ":" in reference else "textarena")
    out = built(reference, *HERE)
    assert (out / "requirements.txt").read_text().splitlines() == requirements
    assert not {path.name for path in out.iterdir()} & {"birds", "lines", "data"}
    installed = [
        words for what, words in instructions(out / "Dockerfile") if what == "RUN" and words.startswith("apt-get")
    ]
    assert packages in " ".join(installed)
    assert bool(packages) == bool(installed)
    assert bool(packages) == ("--cap-add SYS_ADMIN" in (out / "README.md").read_text())


def test_a_package_that_a_file_imports_is_installed_in_the_version_of_here(birds: Path):
    pytest.importorskip("PIL")
    Path("paint.py").write_text(PICKY + GAME.replace("Parrot", "Paint"))
    more_packages = ("--requirement", "more>=1", "--apt", "git")
    done = envport_here("build", "./paint.py:Paint", "--output", "out", *HERE, *more_packages)
    assert done.returncode == 0, done.stderr
    assert "nowhere, of which nothing is installed" in done.stderr
    ours, pillow, more = Path("out/requirements.txt").read_text().split()
    assert (ours, pillow.partition("==")[0].lower(), more) == ("envport==0.1.0", "pillow", "more>=1")
    assert "no-install-recommends git " in Path("out/Dockerfile").read_text()
    assert Path("out/lines/words.py").is_file()


def test_what_is_there_is_not_overwritten_unasked(birds: Path):
    out = built("counter", *HERE)
    (out / "Dockerfile").write_text("mine")
    (out / ".git").mkdir()
    assert "is not empty" in refused("build", "counter", "--output", "out", *HERE, cwd=birds)
    assert (out / "Dockerfile").read_text() == "mine"
    built("counter", *HERE, "--force")
    assert (out / "Dockerfile").read_text().startswith("FROM ")
    assert (out / ".git").is_dir()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("counter", "--apt", "bash; rm -rf /"), "is no name of a Debian package"),
        (("counter", "--include", "nothing.txt"), "there is no "),
        (("counter", "--include", "../elsewhere.txt"), "lies outside of"),
        (("counter", "--envport", "numpy"), "neither a wheel nor"),
        (("counter", "--envport", "gone.whl"), "there is no file"),
        (("./envport.toml:filed",), "which an image must not hold"),
    ],
)
def test_what_cannot_be_built_is_refused(words: tuple[str, ...], why: str, birds: Path):
    (birds.parent / "elsewhere.txt").write_text("")
    Path("secret").write_text("bird-seed")
    with Path("envport.toml").open("a") as file:
        file.write('[environments.filed]\nreference = "counter"\nsecrets = { KEY = { file = "secret" } }\n')
    done = envport_here("build", *words, "--output", "out", *(() if "--envport" in words else HERE))
    assert done.returncode == 2
    assert why in done.stderr
    assert not Path("out").exists()


@pytest.mark.slow
def test_the_dockerfile_s_own_virtual_environment_serves_and_is_played(birds: Path, tmp_path: Path):
    """envport is installed from a folder here, so its wheel is built and put beside the Dockerfile."""
    assert envport("build", "grey", "--output", "out", cwd=birds, fresh=True, PYTHONPATH=str(birds)).returncode == 0
    assert [path.suffix for path in (birds / "out").glob("envport-*")] == [".whl"]
    assert "*.whl filter=lfs" in (birds / "out/.gitattributes").read_text()
    image = Image(birds / "out", tmp_path / "image", own_python=True)
    with Started(image, ENVPORT_TOKEN=TOKEN, GREY_KEY="another") as served:
        assert played(served, "lora") == ("Right.", 1.0)
