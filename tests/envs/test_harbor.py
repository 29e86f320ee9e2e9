"""Task folders of Harbor by `harbor:DIR`: played in the sandbox and judged by their tests, or refused."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from bubblewrap import needs_bubblewrap
from opening import open_episode
from slow import slow

from envport.checker import examine
from envport.episodes import Episode, Episodes
from envport.errors import ConfigurationError, InvalidOption
from envport.registry import load
from envport_envs.harbor.scheme import harbor

TOML = """
version = "1.0"

[metadata]
difficulty = "easy"

[verifier]
timeout_sec = 30.0
env = { WANTED = "6" }

[agent]
timeout_sec = 500.0

[solution]
env = { GREETING = "two words" }

[environment]
memory = "512M"
storage = "100M"
"""
DOCKERFILE = """
# Numbers to add.
FROM python:3.13-slim-bookworm
WORKDIR /app
ENV LEVEL=1 \\
    NAME="some name"
RUN mkdir -p /data/in
COPY --chown=1000:1000 numbers/ numbers/
COPY --chmod=755 tool.sh more.txt /opt/tools/
COPY more.txt /data/renamed.txt
CMD ["bash"]
"""
# The tests run code of the player, as most tests do.
TEST = """#!/bin/bash
[ "$(pwd)" = /app ] || [ "$(pwd -P)" = /work/app ] || exit 1
if [ "$(python3 /app/total.py)" = "$WANTED" ] && [ "$NAME" = "some name" ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
exit 3
"""
SOLVE = """#!/bin/bash
set -e
[ "$GREETING" = "two words" ] && [ "$LEVEL" = 1 ]
cp /solution/lib/total.py /app/total.py
"""
TOTAL = "print(sum(map(int, open('/app/numbers/list.txt'))))\n"

Folders = Mapping[str, str | None]


def task_folder(folder: Path, changes: Folders | None = None) -> str:
    """Write a task folder, with some files replaced or, where there is `None`, left out. Returns its path."""
    files: dict[str, str | None] = {
        "task.toml": TOML,
        "instruction.md": "Write total.py, which prints the sum of numbers/list.txt.\n",
        "environment/Dockerfile": DOCKERFILE,
        "environment/numbers/list.txt": "1\n2\n3\n",
        "environment/tool.sh": "echo tool\n",
        "environment/more.txt": "more\n",
        "tests/test.sh": TEST,
        "solution/solve.sh": SOLVE,
        "solution/lib/total.py": TOTAL,
        **(changes or {}),
    }
    for name, text in files.items():
        if text is not None:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return str(folder)


@asynccontextmanager
async def table(folder: str) -> AsyncIterator[Episodes]:
    # In threads, because processes take longer to begin with. The checker plays it in processes.
    episodes = Episodes({"it": load(f"harbor:{folder}", "it")}, runtime="thread")
    async with episodes.run():
        yield episodes


async def said(episode: Episode, tool: str, **arguments: str) -> str:
    result = await episode.call(tool, arguments)
    assert not result.is_error, result.observation.text
    return result.observation.text


async def opened(episodes: Episodes) -> Episode:
    return await open_episode(episodes, "it", split="tasks", task=0, seed=0)


async def earned(episodes: Episodes, files: Mapping[str, str], *commands: str) -> float | None:
    episode = await opened(episodes)
    for path, content in files.items():
        await said(episode, "write_file", path=path, content=content)
    for command in commands:
        await said(episode, "bash", command=command)
    return (await episodes.finish(episode.handle, episode.principal)).reward


@pytest.mark.slow
@needs_bubblewrap
async def test_the_checker_plays_solutions_and_nothing_and_finds_what_is_wrong(tmp_path: Path) -> None:
    task_folder(tmp_path / "right")
    task_folder(tmp_path / "unsolved", {"solution/lib/total.py": "print(7)\n"})
    task_folder(tmp_path / "free", {"tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n"})
    task_folder(tmp_path / "unknown", {"solution/solve.sh": None})
    report = await examine(f"harbor:{tmp_path}", seeds=[0], steps=4)
    assert {(finding.check, finding.message) for finding in report.findings if finding.check != "runtime"} == {
        ("solution", "task 'unsolved': the reference solution earns 0, and it has to earn 1"),
        ("solution", "task 'free': doing nothing earns 1, and it has to earn 0"),
    }
    assert report.solved == 3


@needs_bubblewrap
async def test_the_machine_is_what_the_dockerfile_says(tmp_path: Path) -> None:
    spec = load(f"harbor:{task_folder(tmp_path / 'add')}")
    assert (spec.name, spec.prototype.max_seconds) == ("add", 500.0)
    async with table(task_folder(tmp_path / "add")) as episodes:
        episode = await opened(episodes)
        assert episode.prompt == "Write total.py, which prints the sum of numbers/list.txt."
        looked = await said(
            episode, "bash", command="pwd; echo $LEVEL $NAME; cat numbers/list.txt /data/renamed.txt; ls -d /data/in"
        )
        assert looked == "/app\n1 some name\n1\n2\n3\nmore\n/data/in\n(exit code 0.)"
        assert await said(episode, "bash", command="/opt/tools/tool.sh 2>&1; ls /opt/tools") == (
            "tool\nmore.txt\ntool.sh\n(exit code 0.)"
        )
        assert await said(episode, "python", code="open('numbers/list.txt').read()") == "'1\\n2\\n3\\n'\n(exit code 0.)"
        assert await said(episode, "read_file", path="numbers/list.txt") == "1\n2\n3\n"
        await said(episode, "write_file", path="made/here.txt", content="made\n")
        assert (
            await said(episode, "bash", command="cat /app/made/here.txt; cd made; word=kept") == "made\n(exit code 0.)"
        )
        assert await said(episode, "bash", command="pwd; echo $word") == "/app/made\nkept\n(exit code 0.)"
        # Neither the tests nor the solution are there.
        for hidden in ("/tests", "/solution", str(tmp_path)):
            assert "No such file" in await said(episode, "bash", command=f"ls {hidden}/")


@needs_bubblewrap
@pytest.mark.parametrize(
    ("script", "reward"),
    [
        ("echo 0.25 > /logs/verifier/reward.txt", 0.25),
        ('echo \'{"reward": 0.5, "seconds": 3}\' > /logs/verifier/reward.json', 0.5),
        pytest.param("echo '{\"accuracy\": 0.75}' > /logs/verifier/reward.json", 0.75, marks=pytest.mark.slow),
        ('echo \'{"a": 1, "b": 1}\' > /logs/verifier/reward.json', 0.0),
        pytest.param("echo nan > /logs/verifier/reward.txt", 0.0, marks=pytest.mark.slow),
        pytest.param("echo well done > /logs/verifier/reward.txt", 0.0, marks=pytest.mark.slow),
        ("yes '[' | head -n 60000 | tr -d '\\n' > /logs/verifier/reward.json", 0.0),
        ("ln -s /dev/zero /logs/verifier/reward.txt", 0.0),
        ("echo 1 > /logs/verifier/reward.txt; kill -9 $$", 0.0),
        ("true", 0.0),
    ],
)
async def test_the_reward_is_what_the_tests_write(tmp_path: Path, script: str, reward: float) -> None:
    async with table(task_folder(tmp_path / "add", {"tests/test.sh": f"{script}\n"})) as episodes:
        assert await earned(episodes, {}) == reward


# Each leaves a wrong total.py.
CHEATS = {
    "writes the report": ({"total.py": "print(0)\n"}, "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt"),
    "leaves a link for the report": ({"total.py": "print(0)\n"}, "rm -rf /logs/verifier; ln -s /app /logs/verifier"),
    "leaves a daemon": (
        {"total.py": "print(0)\n"},
        "setsid sh -c 'while :; do echo 1 > /logs/verifier/reward.txt; done' > /dev/null 2>&1 &",
    ),
    "brings tests of its own": ({"total.py": "print(0)\n"}, "mkdir -p /work/tests; echo exit > /work/tests/test.sh"),
    "edits the tests that run it": (
        {
            "total.py": "import glob\nfor path in glob.glob('/tests/*'):\n"
            "    open(path, 'w').write('\\necho 1 > /logs/verifier/reward.txt' * 100)\n"
        },
        "true",
    ),
    "ends the tests that run it": (
        {
            "total.py": "import os\nopen('/logs/verifier/reward.txt', 'w').write('1')\nos.kill(os.getppid(), 9)\n"
            "os.kill(-1, 9)\n"
        },
        "true",
    ),
    "leaves": ({"total.py": "import os\nos._exit(0)\n"}, "true"),
    "takes its folder away": ({}, "rm -rf /app /work/*"),
    "leaves more than can be copied": ({}, "head -c 60000000 /dev/urandom > large"),
}


@needs_bubblewrap
@pytest.mark.parametrize("how", [*CHEATS][:6] + slow([*CHEATS][6:]))
async def test_who_only_looks_as_if_it_had_done_it_earns_nothing(tmp_path: Path, how: str) -> None:
    files, command = CHEATS[how]
    async with table(task_folder(tmp_path / "add")) as episodes:
        assert await earned(episodes, files, command) == 0.0
        if how == "leaves a daemon":
            assert await earned(episodes, {"total.py": TOTAL}, command) == 1.0


@needs_bubblewrap
async def test_a_report_of_the_player_does_not_stand_in_for_one_of_the_tests(tmp_path: Path) -> None:
    async with table(task_folder(tmp_path / "add", {"tests/test.sh": "true\n"})) as episodes:
        assert await earned(episodes, {}, "echo 1 > /logs/verifier/reward.txt; cat /logs/verifier/reward.txt") == 0.0


@needs_bubblewrap
async def test_tests_that_others_may_not_read_are_run_all_the_same(tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "add")
    os.chmod(f"{folder}/tests/test.sh", 0o600)
    os.chmod(f"{folder}/tests", 0o700)
    async with table(folder) as episodes:
        assert await earned(episodes, {"total.py": TOTAL}) == 1.0


def dockerfile(*lines: str) -> Folders:
    return {"environment/Dockerfile": "\n".join(("FROM ubuntu:24.04", *lines))}


REFUSED: dict[str, tuple[Folders, str]] = {
    "image": ({"task.toml": f'{TOML}docker_image = "some-org/name:1"\n'}, "needs the image some-org/name:1"),
    "gpus": ({"task.toml": f"{TOML}gpus = 1\n"}, "needs GPUs"),
    "mcp": ({"task.toml": f'{TOML}[[environment.mcp_servers]]\nname = "x"\n'}, "needs MCP servers"),
    "steps": ({"task.toml": f'{TOML}[[steps]]\nname = "one"\n', "instruction.md": None}, "has several steps"),
    "windows": ({"task.toml": f'{TOML}os = "windows"\n'}, "needs windows"),
    "healthcheck": ({"task.toml": f'{TOML}[environment.healthcheck]\ncommand = "x"\n'}, "healthy first"),
    "variables": ({"task.toml": f'{TOML}[environment.env]\nKEY = "${{KEY}}"\n'}, "variables of this machine"),
    "verifier": ({"task.toml": '[verifier]\nenvironment_mode = "separate"\n'}, "environment of their own"),
    "verifier image": ({"tests/Dockerfile": "FROM ubuntu\n"}, "environment of their own"),
    "compose": ({"environment/docker-compose.yaml": "services: {}\n"}, "several containers"),
    "ignore": ({"environment/.dockerignore": "x\n"}, ".dockerignore"),
    "from": (
        {"environment/Dockerfile": "FROM golang:1.27@sha256:0\n"},
        "line 1 .* an image of its own; allowed: ubuntu",
    ),
    "run": (
        dockerfile("# Tools", "RUN apt-get update && \\", "    apt-get install -y jq"),
        "line 3 .*'RUN apt-get update",
    ),
    "run more": (dockerfile("RUN mkdir -p /app; curl x"), "runs a program"),
    "stages": (dockerfile("COPY --from=build /x /x"), "allowed: --chown and --chmod"),
    "absent": (dockerfile("COPY absent.txt /app/"), "there is no 'absent.txt' beside it"),
    "outside": (dockerfile("COPY ../task.toml /app/"), "there is no '../task.toml' beside it"),
    "system": (dockerfile("COPY more.txt /etc/more.txt"), "changes /etc/more.txt, which belongs to the system"),
    "workdir": (dockerfile("WORKDIR /usr/src/app"), "changes /usr/src/app"),
    "arg": (dockerfile("ARG X=1"), "more than choosing a plain system"),
    "reference": (dockerfile("WORKDIR $HOME"), "variables of the image"),
    "user": (dockerfile("USER agent"), "a user of the image"),
    "entrypoint": (dockerfile('ENTRYPOINT ["/start.sh"]'), "a program that the image starts"),
    "quotes": (dockerfile("COPY 'a"), "No closing quotation"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_needs_an_image_or_more_is_refused_with_the_reason(tmp_path: Path, what: str) -> None:
    changes, reason = REFUSED[what]
    with pytest.raises(ConfigurationError, match=f"(?s)1 of 1 tasks cannot be run here.*add: .*{reason}"):
        load(f"harbor:{task_folder(tmp_path / 'add', changes)}")


def test_a_folder_of_tasks_says_which_cannot_be_run_and_leaves_them_out_if_told(tmp_path: Path) -> None:
    for name in ("one", "two"):
        task_folder(tmp_path / name)
    assert [task.id for task in load(f"harbor:{tmp_path}").splits["tasks"]] == ["one", "two"]
    task_folder(tmp_path / "three", dockerfile("RUN make"))
    with pytest.raises(ConfigurationError, match=r"1 of 3 tasks .*; skip=true leaves them out, and 2 are left"):
        load(f"harbor:{tmp_path}")
    tasks = load(f"harbor:{tmp_path}?skip=true").splits["tasks"]
    assert [task.id for task in tasks] == ["one", "two"]
    with pytest.raises(ConfigurationError, match="1 of 1 tasks cannot be run here"):
        load(f"harbor:{tmp_path / 'three'}?skip=true")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task.toml": None}, "there is no task.toml in it"),
        ({"task.toml": "version ="}, r"task\.toml is no TOML"),
        ({"task.toml": "[verifier]\ntimeout_sec = -1\n"}, r"verifier\.timeout_sec: .*greater than 0"),
        ({"task.toml": '[environment]\nmemory = "much"\n'}, r"environment\.memory"),
        ({"instruction.md": None, "tests/test.sh": None}, r"it has no instruction\.md and no tests/test\.sh"),
    ],
)
def test_a_folder_that_is_no_task_is_refused(tmp_path: Path, changes: Folders, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load(f"harbor:{task_folder(tmp_path / 'add', changes)}")
    with pytest.raises(ConfigurationError, match="there is no such folder"):
        load(f"harbor:{tmp_path / 'absent'}")
    with pytest.raises(InvalidOption, match="seconds"):
        load(f"harbor:{task_folder(tmp_path / 'other')}?seconds=0")


OTHER = '[environment]\ndocker_image = "other"\n'
RUNTIME = """
class Everything:
    def refusal(self, task):
        return None if task.settings.environment.docker_image == "mine" else "it is not mine"

    def open(self, task, player_code, seconds):
        return Box(task.name)


class Box:
    def __init__(self, name):
        self.name = name

    def bash(self, command):
        return f"{self.name} ran {command}"

    def verify(self):
        return 0.5

    def close(self):
        pass
"""


@needs_bubblewrap
async def test_a_package_can_bring_a_runtime_for_what_needs_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    (package / "boxes-1.dist-info").mkdir(parents=True)
    (package / "boxes_of_a_test.py").write_text(RUNTIME)
    (package / "boxes-1.dist-info" / "METADATA").write_text("Name: boxes\nVersion: 1\n")
    points = "[envport.harbor_runtimes]\nboxes = boxes_of_a_test:Everything\n"
    (package / "boxes-1.dist-info" / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(package)
    with pytest.raises(ConfigurationError, match="needs the image other; it is not mine"):
        load(f"harbor:{task_folder(tmp_path / 'other', {'task.toml': OTHER})}")
    async with table(
        task_folder(tmp_path / "add", {"task.toml": '[environment]\ndocker_image = "mine"\n'})
    ) as episodes:
        episode = await opened(episodes)
        assert await said(episode, "bash", command="this") == "add ran this"
        assert (await episodes.finish(episode.handle, episode.principal)).reward == 0.5


def test_the_table_of_the_page_has_the_options() -> None:
    page = Path(inspect.getfile(harbor)).with_name("README.md").read_text()
    table = page.partition("| option | |")[2].partition("\n\n")[0]
    options = [it.name for it in inspect.signature(harbor).parameters.values() if it.kind is it.KEYWORD_ONLY]
    assert re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE) == options
