"""Any MCP server by `mcp:COMMAND`: its own process, folder and sandbox for each episode, and its tools untouched."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import upstream_server
from bubblewrap import needs_bubblewrap
from opening import open_episode
from patience import patient
from slow import slow

from envport.environment import RuntimeKind
from envport.episodes import Episode, Episodes
from envport.errors import ConfigurationError, EpisodeFailed, InvalidOption, InvalidRequest
from envport.registry import EnvironmentDefinition, load
from envport.types import Task

SERVER = f'mcp:"{{python}} {upstream_server.__file__} --seed {{seed}}"'
TASKS = """
[defaults]
files = { "in/notes.txt" = "buy milk" }

[[tasks]]
id = "copy"
prompt = "Copy the notes to out.txt."
tools = ["read", "write", "link", "die", "die_soon", "hang"]
score = { files = { "out.txt" = "buy milk" } }
metadata = { level = 1 }

[[tasks]]
id = "shout"
split = "test"
score = { contains = { "out.txt" = "MILK" }, missing = ["in/notes.txt"] }

[[tasks]]
id = "by-command"
split = "test"
score = { command = "grep -q milk out.txt" }

[[tasks]]
id = "by-function"
split = "test"
score = { function = "points.py:points" }

[[tasks]]
id = "by-asking"
split = "test"
score = { function = "points.py:asked" }
"""
POINTS = """
def points(folder, task, calls):
    assert task.id == "by-function"
    return len((folder / "out.txt").read_text()) + 10 * len(calls)


async def asked(call):
    return float((await call("counted", {})).text)
"""


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    (tmp_path / "points.py").write_text(POINTS)
    file = tmp_path / "tasks.toml"
    file.write_text(TASKS)
    # Root's scoring commands run as another user.
    tmp_path.chmod(0o755)
    return file


def server(reference: str = SERVER, /, **options: Any) -> EnvironmentDefinition:
    return load(reference, "it", options=options)


@asynccontextmanager
async def table(definition: EnvironmentDefinition, runtime: RuntimeKind | None = None) -> AsyncIterator[Episodes]:
    """The runtime `inline` saves a process that loads all again; what the server can reach is another matter then."""
    episodes = Episodes({"it": definition}, runtime=runtime)
    async with episodes.run():
        yield episodes


async def said(episode: Episode, tool: str, **arguments: Any) -> str:
    return (await episode.call(tool, arguments)).observation.text


@needs_bubblewrap
def test_tools_pass_through_with_their_schemas_untouched() -> None:
    definition = server()
    listed = {tool["name"]: tool for tool in definition.listing}
    assert [*listed] == [tool["name"] for tool in upstream_server.Server("", [], False).listing()]
    assert json.dumps(listed["hostile"]["inputSchema"]) == json.dumps(upstream_server.HOSTILE)
    assert listed["read"]["title"] == "Read it"
    assert listed["read"]["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    assert listed["against_its_schema"]["outputSchema"] == {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert definition.instructions == "Do as the server says."
    assert [*server(tools=["seeded", "read"]).tools] == ["seeded", "read"]


@needs_bubblewrap
@pytest.mark.parametrize("era", [*slow(["legacy"]), "modern"])
async def test_what_the_server_answers_arrives(era: str) -> None:
    definition = server(SERVER[:-1] + (' --modern"' if era == "modern" else '"'))
    async with table(definition) as episodes:
        episode = await open_episode(episodes, "it", seed=77)
        assert await said(episode, "seeded") == "77"
        picture = await episode.call("picture", {})
        assert picture.observation.content == (
            {"type": "image", "data": upstream_server.PIXEL, "mimeType": "image/png"},
        )
        assert (await episode.call("structured", {})).observation.structured_content == {"n": 1}
        assert json.loads(await said(episode, "hostile", **{"class": "é\u2028\n", "a b-c": [1]})) == {
            "class": "é\u2028\n",
            "a b-c": [1],
        }
        refused = await episode.call("refused", {})
        assert (refused.is_error, refused.observation.content) == (True, ({"type": "text", "text": "not like this"},))
        broke = await episode.call("read", {"path": "nowhere"})
        assert (broke.is_error, broke.observation.text) == (True, "it broke: No such file or directory")
        assert await said(episode, "garbage") == "after it"
        told: list[tuple[float, float | None, str | None]] = []
        done = await episode.call("progressing", {}, progress=lambda *report: told.append(report))
        assert (done.observation.text, told) == ("done", [(1.0, 2.0, "step 1"), (2.0, 2.0, "step 2")])
        assert len(await said(episode, "flood", megabytes=8)) == 8 * 2**20
        assert await said(episode, "seeded") == "77"


@needs_bubblewrap
async def test_each_episode_has_a_server_and_a_folder_of_its_own(tasks: Path) -> None:
    async with table(server(tasks=str(tasks)), "inline") as episodes:
        one = await open_episode(episodes, "it", task=0, seed=1)
        other = await open_episode(episodes, "it", task=0, seed=1)
        assert one.start.tools.tools.keys() == {"read", "write", "link", "die", "die_soon", "hang"}
        assert one.first_observation.text == "Your working folder has these files: in/notes.txt."
        assert one.first_observation == other.first_observation
        await said(one, "write", path="out.txt", text="mine")
        assert (await other.call("read", {"path": "out.txt"})).is_error
        assert await said(other, "read", path="in/notes.txt") == "buy milk"


@needs_bubblewrap
async def test_a_server_sees_what_it_is_allowed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ITS_KEY", "42")
    monkeypatch.setenv("ANOTHER_KEY", "secret")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        async with table(server(variables=["ITS_KEY"])) as episodes:
            episode = await open_episode(episodes, "it")
            variables = json.loads(await said(episode, "variables"))
            assert variables["ITS_KEY"] == "42"
            assert {"HOME": "/tmp", "PATH": os.environ["PATH"]}.items() <= variables.items()
            assert "ANOTHER_KEY" not in variables
            assert await said(episode, "reached", port=port) != "reached"
            assert await said(episode, "listed", path=".") == ""
            seen = [await said(episode, "listed", path=path) for path in ("/", "/proc", "/tmp")]
            assert seen[2] == ""
            assert str(os.getpid()) not in seen[1].split()
            assert (await episode.call("listed", {"path": str(Path.home())})).is_error or str(Path.home()) == "/root"
            assert (await episode.call("write", {"path": "/etc/x", "text": "x"})).is_error
            assert (await episode.call("read", {"path": f"/proc/{os.getpid()}/environ"})).is_error
        async with table(server(network=True)) as episodes:
            assert await said(await open_episode(episodes, "it"), "reached", port=port) == "reached"
        async with table(server(sandbox=False)) as episodes:
            trusted = await open_episode(episodes, "it")
            assert await said(trusted, "reached", port=port) == "reached"
            assert "ANOTHER_KEY" not in json.loads(await said(trusted, "variables"))
            assert str(os.getpid()) in (await said(trusted, "listed", path="/proc")).split()


SCORED: list[tuple[str, int, list[tuple[str, dict[str, str]]], float]] = [
    ("train", 0, [("write", {"path": "out.txt", "text": "buy milk"})], 1.0),
    ("train", 0, [("write", {"path": "out.txt", "text": "buy milk\n"})], 0.0),
    ("train", 0, [], 0.0),
    ("test", 0, [("write", {"path": "out.txt", "text": "MILK!"})], 0.0),
    ("test", 1, [("write", {"path": "out.txt", "text": "milk"})], 1.0),
    ("test", 1, [("write", {"path": "out.txt", "text": "tea"})], 0.0),
    ("test", 1, [], 0.0),
    ("test", 2, [("write", {"path": "out.txt", "text": "four"})], 14.0),
    ("test", 3, [("counted", {}), ("counted", {})], 3.0),
]


@needs_bubblewrap
async def test_the_final_state_is_scored(tasks: Path) -> None:
    async with table(server(tasks=str(tasks)), "inline") as episodes:
        for split, task, calls, reward in SCORED:
            episode = await open_episode(episodes, "it", split=split, task=task)
            for tool, arguments in calls:
                assert not (await episode.call(tool, arguments)).is_error
            ended = await episodes.finish(episode.handle, "me")
            assert ended.outcome is not None
            assert (split, task, calls, ended.reward, ended.outcome.fault) == (split, task, calls, reward, None)


@needs_bubblewrap
async def test_a_link_of_the_player_leads_nowhere_when_it_is_scored(tasks: Path) -> None:
    answer = tasks.parent / "answer.txt"
    answer.write_text("buy milk")
    async with table(server(tasks=str(tasks))) as episodes:
        episode = await open_episode(episodes, "it", split="train", task=0)
        assert not (await episode.call("link", {"path": "out.txt", "to": str(answer)})).is_error
        assert (await episodes.finish(episode.handle, "me")).reward == 0.0


@needs_bubblewrap
async def test_a_server_that_fails_is_a_fault_and_ends_its_episode_only(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = replace(server(tasks=str(tasks)), limits={"call_seconds": patient(3)})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = {*os.listdir(tmp_path)}
    async with table(definition) as episodes:
        neighbour = await open_episode(episodes, "it", split="test", task=0)
        for tool in ("die", "die_soon", "hang", "against_its_schema"):
            episode = await open_episode(episodes, "it", split="test", task=0)
            if tool == "die_soon":
                assert await said(episode, tool) == "soon"
            else:
                with pytest.raises(EpisodeFailed):
                    await episode.call(tool, {})
            ended = await episodes.finish(episode.handle, "me")
            assert ended.outcome is not None
            expected = ("deadline", "environment") if tool == "hang" else ("upstream", "infrastructure")
            assert (tool, ended.outcome.reason, ended.outcome.fault, ended.reward) == (tool, *expected, None)
        assert not (await neighbour.call("write", {"path": "a", "text": "b"})).is_error
    assert {*os.listdir(tmp_path)} == before, "nothing is left, also of the process that was killed"


@needs_bubblewrap
async def test_a_server_that_runs_the_player_s_code_may_be_ended_by_it(tasks: Path) -> None:
    async with table(server(tasks=str(tasks), ends=True), "inline") as episodes:
        episode = await open_episode(episodes, "it", split="train", task=0)
        await said(episode, "write", path="out.txt", text="buy milk")
        last = await episode.call("die", {})
        assert last.observation.text.startswith("The server has ended.")
        ended = await episodes.finish(episode.handle, "me")
        assert ended.outcome is not None
        assert (ended.status, ended.outcome.fault, ended.reward) == ("terminated", None, 1.0)


@needs_bubblewrap
async def test_only_tasks_of_the_file_are_played(tasks: Path) -> None:
    async with table(server(tasks=str(tasks)), "inline") as episodes:
        for task in (Task(id="mine", metadata={"score": {"command": "true"}}), Task(id="copy", prompt="another")):
            with pytest.raises(InvalidRequest, match="there is no task"):
                await open_episode(episodes, "it", task=task)


@needs_bubblewrap
@pytest.mark.parametrize(
    ("reference", "options", "why"),
    [
        ('mcp:"nothing-like-this --at all"', {}, "there is no program 'nothing-like-this' on the PATH"),
        (SERVER[:-1] + ' --words-at-end boom"', {}, "boom"),
        ('mcp:"true"', {}, "the MCP server could not be started"),
        ("mcp:http://127.0.0.1:9/mcp", {}, "the MCP server could not be reached"),
        ("mcp:http://127.0.0.1:9/mcp", {"sandbox": False}, "the option sandbox is for a command"),
        (SERVER, {"headers": {"a": "b"}}, "the option headers is for an address"),
        (
            SERVER,
            {"tools": ["absent"]},
            "the option tools names the tool 'absent'; the server's tools are: write, read",
        ),
        (SERVER, {"variables": ["NOT_SET_HERE"]}, "the variable NOT_SET_HERE is to be passed"),
        (SERVER, {"reads": ["/nowhere/at/all"]}, "an MCP server is to read /nowhere/at/all, which does not exist"),
        (SERVER, {"network": True, "sandbox": False}, "give only sandbox=false"),
        (SERVER, {"tasks": "absent.toml"}, "there is no task file absent.toml"),
        ('mcp:"uvx something"', {}, "there is no program 'uvx'|uvx installs"),
    ],
)
def test_what_cannot_be_served_is_said(reference: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises((ConfigurationError, InvalidOption), match=why):
        server(reference, **options)


@needs_bubblewrap
@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("[[tasks]]\nname = 'a'", "task 0: unknown key 'name'; allowed: id, split, prompt, files"),
        ("[[tasks]]\nscore = {}", "score needs exactly one of"),
        ("[[tasks]]\nscore = { command = 'true', function = 'a:b' }", "score needs exactly one of"),
        ("[[tasks]]\nscore = { exit = 0 }", "unknown key 'score.exit'; allowed: files, contains"),
        ("[[tasks]]\nscore = { command = 'not-there a' }", "there is no program 'not-there'"),
        ("[[tasks]]\nscore = { function = 'points.py:nothing' }", "there is no function 'nothing'"),
        ("[[tasks]]\nscore = { function = 'points.py:wants' }", "takes 'reward'; it can take: folder, task"),
        ("[[tasks]]\nfiles = { '../a' = 'b' }", "'../a' has to be the path of a file in the working folder"),
        ("[[tasks]]\nfolder = 'absent'", "there is no folder"),
        ("[[tasks]]\ntools = ['absent']", "names the tool 'absent'"),
        ("[[tasks]]\nid = 'a'\n[[tasks]]\nid = 'a'", "task 1: there is another task with the id 'a'"),
        ("[tasks]", r"write \[defaults\] once"),
        ("a = 1", "unknown key 'a'"),
        ("", "has no tasks"),
        ("[[tasks]", "is not TOML"),
    ],
)
def test_a_malformed_task_file_is_refused_in_words(table: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "points.py").write_text("def wants(reward):\n    return reward\n")
    file = tmp_path / "tasks.toml"
    file.write_text(table)
    with pytest.raises(ConfigurationError, match=why):
        server(tasks=str(file))


@needs_bubblewrap
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's sandboxes have another user")
def test_a_folder_that_is_closed_to_the_scorer_is_said_at_once(tasks: Path) -> None:
    tasks.parent.chmod(0o700)
    with pytest.raises(InvalidOption, match=r"a scoring command cannot read .* closed to others"):
        server(tasks=str(tasks))


@needs_bubblewrap
def test_tasks_come_as_lines_and_from_python_too(tmp_path: Path) -> None:
    lines, module = tmp_path / "tasks.jsonl", tmp_path / "more.py"
    lines.write_text('{"id": "a", "prompt": "Do it."}\n\n{"split": "test"}\n')
    module.write_text('def tasks():\n    return ({"prompt": f"task {n}"} for n in range(3))\n')
    definition = server(tasks=str(lines))
    assert (definition.task("train", 0).prompt, definition.task("test", 0).id) == ("Do it.", "test/0")
    assert server(tasks=str(module)).task("train", 2).prompt == "task 2"
    lines.write_text('{"id": "a"}\n{"id": ')
    with pytest.raises(ConfigurationError, match="line 2 is not JSON"):
        server(tasks=str(lines))


@needs_bubblewrap
def test_python_is_not_needed_to_be_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert [*server(tools=["read"]).tools] == ["read"]
    assert sys.executable not in os.environ["PATH"]


@pytest.mark.slow
async def test_the_official_server_for_files_runs_without_npx(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Path(sys.prefix) / "node"
    if not (node / "node_modules" / "@modelcontextprotocol" / "server-filesystem").is_dir():
        pytest.skip("npm is not there, or could not install the server")
    # npx takes what is installed in the current folder.
    monkeypatch.chdir(node)
    example = Path(__file__).parents[2] / "examples" / "grpo_mcp_server"
    definition = server("mcp:npx -y @modelcontextprotocol/server-filesystem .", tasks=str(example / "tasks.toml"))
    async with table(definition) as episodes:
        episode = await open_episode(episodes, "it", task=2)
        assert await said(episode, "list_allowed_directories") == "Allowed directories:\n/workspace"
        assert (await episode.call("read_text_file", {"path": "/etc/hostname"})).is_error
        assert not (await episode.call("create_directory", {"path": "blue"})).is_error
        assert (await episodes.finish(episode.handle, "me")).reward == 1.0
