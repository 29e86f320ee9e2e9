"""Clients that are not the Python SDK: TypeScript's two SDKs and Claude Code."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from environments import Picky
from harness import RunningGateway, running
from node_clients import ROOT, executable, package
from patience import patient
from slow import slow

from envport import Client
from envport.registry import EnvironmentDefinition

SCRIPT = Path(__file__).parents[1] / "support" / "node" / "play.mjs"


def play(sdk: str, *arguments: str) -> dict[str, Any]:
    package(f"@modelcontextprotocol/{sdk}")
    done = subprocess.run(
        ["node", str(SCRIPT), sdk, *arguments],
        capture_output=True,
        text=True,
        timeout=patient(60),
        env={**os.environ, "ENVPORT_NODE": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def in_order(value: Any) -> Any:
    """A JSON value whose objects are lists of pairs, so that comparing it compares the order of its keys too."""
    if isinstance(value, dict):
        return [(key, in_order(item)) for key, item in value.items()]
    return [in_order(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("sdk", "way"),
    [("sdk", "header"), ("client", "episode"), *slow([("sdk", "episode"), ("client", "header")])],
)
def test_typescript_plays_an_episode(gateway: RunningGateway, sdk: str, way: str):
    with Client(gateway.url) as control:
        opened = control.open("counter")
    place = [opened.mcp_url, "count"]
    if way == "header":
        place = [f"{gateway.url}/mcp", "count", f"Envport-Episode={opened.episode_id}"]
    played = play(sdk, *place)
    assert played["answers"] == ["1", "2", "3"]
    assert (played["isError"], "'by' is unknown" in played["refused"]) == (True, True)
    assert played["instructions"].endswith("The counter is at 0.")


@pytest.mark.parametrize("sdk", ["sdk", *slow(["client"])])
def test_typescript_sees_the_very_same_tools(sdk: str):
    spec = EnvironmentDefinition("picky", Picky)
    with running(spec) as gateway, Client(gateway.url) as control:
        played = play(sdk, control.open("picky").mcp_url, "say")
    # JavaScript writes the floats 1e22 and 1e-05 in its own way; everything else, and the order, is equal as text.
    assert in_order(played["tools"]) == in_order(spec.listing)
    assert json.dumps(played["tools"][1]) == json.dumps(spec.listing[1])


def test_typescript_s_session_remembers_its_episode(gateway: RunningGateway):
    played = play("sdk", f"{gateway.url}/environments/counter/mcp", "count")
    # The first answer begins with the first observation.
    assert [answer.splitlines()[-1] for answer in played["answers"]] == ["1", "2", "3"]


def test_claude_code_attaches(gateway: RunningGateway, tmp_path: Path):
    claude = str(executable("@anthropic-ai/claude-code", "claude"))
    env = {**os.environ, "HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path)}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [claude, "mcp", *arguments],
            capture_output=True,
            text=True,
            timeout=patient(200),
            env=env,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    with Client(gateway.url) as control:
        opened = control.open("counter")
    live = gateway.gateway.table.live
    run("add", "--transport", "http", "counter", f"{gateway.url}/environments/counter/mcp")
    run("add", "--transport", "http", "one-episode", opened.mcp_url)
    listed = [line for line in run("list").splitlines() if "http://" in line]
    assert len(listed) == 2
    for line in listed:
        assert "Connected" in line
    assert gateway.gateway.table.live == live, "attaching began an episode"
