"""`envport stdio` with a real client that starts the process, in both eras."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from command_line import SECONDS, command, environment, text
from mcp import Client, StdioServerParameters
from slow import slow

MODES = ["auto", "legacy"]


def process(*words: str) -> StdioServerParameters:
    program, *arguments = command("stdio", *words)
    return StdioServerParameters(command=program, args=arguments, env=environment())


@pytest.mark.parametrize("mode", MODES)
async def test_the_player_starts_episodes(mode: str):
    async with Client(process("counter"), mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["start_episode", "count"]
        begun = await client.call_tool("start_episode", {})
        episode_id = (begun.meta or {})["envport/episode_id"]
        assert [text(await client.call_tool("count", {"episode_id": episode_id})) for _ in range(2)] == ["1", "2"]
        assert text(await client.call_tool("count", {})) == "3"


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("auto", ("--seed", "3")),
        ("legacy", ("--task", "0")),
        ("auto", ("--split", "test", "--task", "1", "--seed", "4")),
        *slow(
            [
                ("legacy", ("--seed", "3")),
                ("auto", ("--task", "0")),
                ("legacy", ("--split", "test", "--task", "1", "--seed", "4")),
            ]
        ),
    ],
)
async def test_a_chosen_task_or_seed_makes_it_one_fixed_episode(mode: str, words: tuple[str, ...]):
    firsts: set[str] = set()
    for _ in range(2):
        async with Client(process("catch?rows=3", *words), mode=mode) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["move"]
            first = text(await client.call_tool("move", {"direction": "stay"}))
            last = await client.call_tool("move", {"direction": "stay"})
            assert (last.meta or {})["envport/terminated"]
            over = await client.call_tool("move", {"direction": "stay"})
            assert over.is_error
            if "--seed" in words:
                firsts.add(first)
    assert len(firsts) <= 1


def test_it_ends_with_its_input_and_leaves_the_output_to_the_protocol():
    done = subprocess.run(
        command("stdio", "counter", fresh=True),
        input="",
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=environment(),
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


LOUD = """
print("loaded")

from envport import Environment, tool


class Loud(Environment):
    '''Prints.'''

    def reset(self, *, seed, task):
        print("reset")
        return "ready"

    @tool
    def act(self) -> str:
        '''Act.'''
        print("called")
        return "done"


class LoudInThread(Loud):
    '''Prints in a thread.'''

    runtime = "thread"


class LoudInProcess(Loud):
    '''Prints in a process.'''

    runtime = "process"
"""


@pytest.mark.parametrize("name", ["Loud", "LoudInThread", "LoudInProcess"])
def test_what_an_environment_prints_is_no_part_of_the_protocol(tmp_path: Path, name: str):
    (tmp_path / "loud.py").write_text(LOUD)
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "act", "arguments": {}}},
    ]
    with subprocess.Popen(
        command("stdio", f"./loud.py:{name}", "--seed", "1"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=tmp_path,
    ) as served:
        assert served.stdin is not None
        assert served.stdout is not None
        served.stdin.write("".join(f"{json.dumps(message)}\n" for message in messages))
        served.stdin.flush()
        answers = [json.loads(served.stdout.readline()) for _ in range(2)]
        rest, errors = served.communicate(timeout=SECONDS)
    assert [answer["id"] for answer in answers] == [1, 2]
    assert (rest, served.returncode) == ("", 0)
    assert "loaded" in errors
