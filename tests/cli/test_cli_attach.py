"""`envport attach` and `open`: what they print is what a client connects with."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import TOKEN, Served, environment, envport, player, refused, text
from mcp import Client, StdioServerParameters
from node_clients import executable
from patience import patient
from slow import slow

MODES = ["auto", "legacy"]

LAMP = """
from PIL import Image

from envport import Environment, Task, tool

class Lamp(Environment):
    def splits(self):
        return {"train": [Task(id="red", prompt=["Which colour?", Image.new("RGB", (8, 8), "red")])]}

    def reset(self, *, seed, task): ...

    @tool
    def answer(self, colour: str) -> None: ...
"""


def settings(*words: str, **variables: str) -> dict[str, Any]:
    done = envport("attach", *words, "--json", **variables)
    assert done.returncode == 0, done
    return json.loads(done.stdout)["mcpServers"]


def expanded(headers: dict[str, str]) -> dict[str, str]:
    """Headers as clients send them: with the variable's value in them."""
    return {name: value.replace("${ENVPORT_TOKEN}", TOKEN) for name, value in headers.items()}


def claude_code(output: str) -> list[str]:
    (line,) = [line for line in output.splitlines() if "claude mcp add" in line]
    return shlex.split(line[line.index("claude") :])


@pytest.mark.parametrize("mode", MODES)
async def test_the_settings_for_other_clients_connect(gateway: Served, mode: str):
    server = settings("counter", "--url", gateway.url)["counter"]
    assert server == {"type": "http", "url": f"{gateway.url}/environments/counter/mcp"}
    async with player(server["url"], mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["start_episode", "count"]


@pytest.mark.parametrize("mode", MODES)
async def test_the_settings_name_the_token_and_never_hold_it(secured: Served, mode: str):
    server = settings("counter", "--url", secured.url, ENVPORT_TOKEN=TOKEN)["counter"]
    assert server["headers"] == {"Authorization": "Bearer ${ENVPORT_TOKEN}"}
    async with player(server["url"], mode, expanded(server["headers"])) as client:
        assert (await client.list_tools()).tools


def test_the_output_says_what_was_checked(gateway: Served, secured: Served):
    done = envport("attach", "catch", "--url", gateway.url)
    assert claude_code(done.stdout)[3:] == ["--transport", "http", "catch", f"{gateway.url}/environments/catch/mcp"]
    assert done.stderr == "Checked: the gateway answers and lists 2 tools: start_episode, move.\n"
    block = done.stdout[done.stdout.index("{") :]
    assert json.loads(block)["mcpServers"]["catch"]["url"].endswith("/environments/catch/mcp")
    unchecked = envport("attach", "counter", "--url", secured.url)
    assert unchecked.returncode == 0
    assert "ENVPORT_TOKEN is not set here" in unchecked.stderr
    assert claude_code(unchecked.stdout)[-2:] == ["--header", "Authorization: Bearer ${ENVPORT_TOKEN}"]


def test_the_gateways_address_comes_from_the_environment(gateway: Served):
    assert settings("counter", ENVPORT_URL=gateway.url + "/")["counter"]["url"].startswith(gateway.url)


@pytest.mark.parametrize("mode", ["auto", *slow(["legacy"])])
async def test_a_process_is_started_from_any_directory(tmp_path: Path, mode: str):
    (tmp_path / "mine.py").write_text(
        "from envport import *\n\nclass Mine(Environment):\n"
        "    def reset(self, *, seed: int, task: Task | None) -> str: return 'hello'\n"
        "    @tool\n    def greet(self) -> str:\n        return 'hi'\n"
    )
    done = envport("attach", "--stdio", "other=mine.py:Mine", "--json", cwd=tmp_path)
    server = json.loads(done.stdout)["mcpServers"]["other"]
    assert server["type"] == "stdio"
    parameters = StdioServerParameters(command=server["command"], args=server["args"], cwd="/", env=environment())
    async with Client(parameters, mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["start_episode", "greet"]


@pytest.mark.parametrize("mode", ["legacy", *slow(["auto"])])
async def test_an_opened_episode_is_played_where_it_says(gateway: Served, mode: str):
    done = envport("open", "counter", "--url", gateway.url, "--seed", "5", "--json")
    opened = json.loads(done.stdout)
    assert opened["seed"] == 5
    assert opened["observation"]["content"] == [{"type": "text", "text": "The counter is at 0."}]
    server = settings("--episode", opened["mcp_url"])["counter"]
    async with player(server["url"], mode) as client:
        assert [text(await client.call_tool("count", {})) for _ in range(2)] == ["1", "2"]


def test_open_prints_all_that_a_player_needs(gateway: Served):
    done = envport("open", "catch", "--url", gateway.url, "--split", "test", "--task", "0")
    assert done.returncode == 0, done
    facts = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[:4] if not line.startswith("MCP"))
    assert facts["episode"].startswith("ep_")
    url = f"{gateway.url}/episodes/{facts['episode']}/mcp"
    assert f"MCP URL  {url}\n" in done.stdout
    assert claude_code(done.stdout)[-1] == url
    assert "Prompt:\nCatch the ball." in done.stdout
    assert "First observation:\nBall in column" in done.stdout


def test_open_shows_no_empty_prompt(tmp_path: Path):
    (tmp_path / "lamp.py").write_text(LAMP)
    with Served("./lamp.py:Lamp", cwd=tmp_path) as served:
        done = envport("open", "lamp", "--url", served.url)
    assert "\n\nFirst observation:\nWhich colour?\n[image: " in done.stdout
    assert "Prompt:" not in done.stdout


async def test_rewards_are_in_the_results_if_asked_for(gateway: Served):
    for words, shown in (((), False), (("--reward-in-meta",), True)):
        opened = json.loads(envport("open", "catch", "--url", gateway.url, "--json", *words).stdout)
        async with player(opened["mcp_url"]) as client:
            result = await client.call_tool("move", {"direction": "stay"})
            assert ("envport/reward" in (result.meta or {})) == shown


async def test_an_agents_token_plays_its_episode_and_opens_nothing_else(secured: Served):
    words = ("open", "counter", "--url", secured.url, "--token-for-agent")
    done = envport(*words, ENVPORT_TOKEN=TOKEN)
    *_, name, url, _, header = claude_code(done.stdout)
    assert name == "counter"
    token = header.removeprefix("Authorization: Bearer ")
    assert f"token    {token}\n" in done.stdout
    assert TOKEN not in done.stdout
    async with player(url, headers={"Authorization": header.removeprefix("Authorization: ")}) as client:
        assert text(await client.call_tool("count", {})) == "1"
    assert "'control'" in refused("open", "counter", "--url", secured.url, ENVPORT_TOKEN=token)


def test_an_episode_that_is_gone_is_not_attached_to(gateway: Served):
    assert "there is no episode" in refused("attach", "--episode", f"{gateway.url}/episodes/ep_gone/mcp")


@pytest.mark.parametrize("way", ["stdio", *slow(["http", "token", "episode"])])
def test_claude_code_takes_the_line_and_connects(gateway: Served, secured: Served, tmp_path: Path, way: str):
    words = {
        "http": ("attach", "counter", "--url", gateway.url),
        "token": ("attach", "counter", "--url", secured.url),
        "stdio": ("attach", "--stdio", "small=catch?rows=5&columns=3"),
        "episode": ("open", "counter", "--url", gateway.url),
    }[way]
    line = claude_code(envport(*words, ENVPORT_TOKEN=TOKEN if way == "token" else "").stdout)
    claude = str(executable("@anthropic-ai/claude-code", "claude"))
    variables = environment(HOME=str(tmp_path), ENVPORT_TOKEN=TOKEN)
    for command in (line[1:], ["mcp", "list"]):
        done = subprocess.run(
            [claude, *command],
            capture_output=True,
            text=True,
            timeout=patient(200),
            cwd=tmp_path,
            env=variables,
            check=False,
        )
        assert done.returncode == 0, done
    assert "Connected" in done.stdout, done
    assert "Failed" not in done.stdout, done
