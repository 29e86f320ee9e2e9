"""The pages on what plays an environment: their programs run, with the address of a gateway of the test."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import websockets.sync.client
from command_line import envport_here
from documents import block, blocks_in, commands
from harness import RunningGateway, connect, running
from openenv_releases import NEW, openenv_python
from patience import patient

from envport import Client
from envport.environment_file import EnvironmentFile
from envport.registry import load
from envport_bridges.openenv import openenv_surface
from envport_envs.mcp_servers.tasks import read_tasks

SHOWN = "http://127.0.0.1:8000"
MCP_SERVERS = "envs/envport_envs/mcp_servers/README.md"
NEMO_GYM = "bridges/envport_bridges/nemo_gym/README.md"


@pytest.fixture(scope="module")
def gateway() -> Any:
    with running(load("catch"), environment_surfaces={"openenv": openenv_surface}) as serving:
        yield serving


def printed(python: str | Path, source: str, gateway: RunningGateway, cwd: Path) -> str:
    """What a program of a page prints."""
    return subprocess.run(
        [python, "-c", source.replace(SHOWN, gateway.url)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=patient(60),
        check=True,
    ).stdout


def test_the_client_opens_an_episode_and_reads_its_reward(gateway: RunningGateway, tmp_path: Path):
    source = block("gateway/envport-client/README.md", "from envport import Client")
    address, *_, reward = printed(sys.executable, source, gateway, tmp_path).splitlines()
    assert address.startswith(f"{gateway.url}/episodes/")
    assert reward == "None"


@pytest.mark.slow
def test_openenv_s_client_plays_to_the_end(gateway: RunningGateway, tmp_path: Path):
    source = block(
        "bridges/envport_bridges/openenv/README.md", "from openenv.core.generic_client import GenericEnvClient"
    )
    assert printed(openenv_python(NEW), source, gateway, tmp_path) in ("1.0\n", "-1.0\n")


def test_the_written_client_plays_as_the_page_says(gateway: RunningGateway, tmp_path: Path):
    page = "bridges/envport_bridges/rollouts/README.md"
    (line,) = [line for line in commands(page) if line.startswith("envport client")]
    words = shlex.split(line.replace(SHOWN, gateway.url))
    file = tmp_path / words[-1]
    assert envport_here(*words[1:-1], str(file)).returncode == 0
    use = f"from {file.stem} import Catch\n{block(page, 'with Catch() as env:')}"
    assert "False 0.0" in printed(sys.executable, use, gateway, tmp_path)


def test_the_messages_of_the_channel_are_answered(gateway: RunningGateway):
    (body,) = blocks_in("gateway/envport/channel/README.md", "json")
    opening, call = (
        json.loads(text) for text in body.replace('"},\n  "', '"}, "').replace("}},\n", "}},").splitlines()
    )
    with websockets.sync.client.connect(f"ws{gateway.url.removeprefix('http')}/rollouts") as channel:
        channel.send(json.dumps(opening))
        opened = json.loads(channel.recv(timeout=patient(30)))
        handle = opened["result"]["episode_id"]
        channel.send(json.dumps(call).replace("ep_...", handle))
        answered = json.loads(channel.recv(timeout=patient(30)))
    assert (opened["id"], answered["id"]) == (opening["id"], call["id"])
    assert "Ball in column" in answered["result"]["content"][0]["text"]


async def test_a_call_with_an_id_is_played_once(gateway: RunningGateway):
    (source,) = blocks_in("examples/cluster/README.md", "python")
    twice = textwrap.indent(source + source, "    ")
    program: dict[str, Any] = {}
    exec(f"async def play(client):\n{twice}    return result\n", program)
    with Client(gateway.url) as control:
        episode = control.open("catch", seed=3)
        async with connect(episode.mcp_url, "modern") as client:
            await program["play"](client)
        assert control.finish(episode.episode_id).steps == 1


def test_the_files_for_an_mcp_server_are_read(tmp_path: Path):
    environments, tasks = blocks_in(MCP_SERVERS, "toml")
    (tmp_path / "envport.toml").write_text(environments)
    file = EnvironmentFile.read(tmp_path / "envport.toml")
    assert set(file.tables) == {"files"}
    (tmp_path / "tasks.toml").write_text(tasks)
    (tmp_path / "start/copy").mkdir(parents=True)
    splits = read_tasks(tmp_path / "tasks.toml")
    assert splits["train"][0].task().prompt == "Copy notes.txt to todo/today.txt."


def test_the_server_s_program_waits_and_the_configuration_names_it():
    yaml = pytest.importorskip("yaml")
    program, configuration = block(NEMO_GYM, "# resources_servers/envport/app.py"), block(NEMO_GYM, "catch:")
    tables = yaml.safe_load(configuration)
    server = tables["catch"]["resources_servers"]["envport"]
    agent = tables["catch_agent"]["responses_api_agents"]["simple_agent"]
    assert program.startswith(f"# resources_servers/envport/{server['entrypoint']}\n")
    assert agent["resources_server"]["name"] in tables
    assert f"http://{server['host']}:{server['port']}" == SHOWN
    # Nobody may play what is not there: the program serves nothing and only waits.
    waited: list[bool] = []
    exec(program.replace("import signal", ""), {"signal": SimpleNamespace(pause=lambda: waited.append(True))})
    assert waited == [True]
