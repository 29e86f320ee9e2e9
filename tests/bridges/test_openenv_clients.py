"""The clients of two releases of OpenEnv play our environments, with the URL changed and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from harness import RunningGateway, running
from openenv_releases import RELEASES, openenv_python
from patience import patient

from envport.registry import load
from envport_bridges.openenv import openenv_surface
from envport_bridges.rollouts import Rollouts

MOVES = ["left", "left", "right", "right", "right", "stay", "right", "left", "right"]
CLIENTS = ["GenericEnvClient", "GenericEnvClient.sync", "MCPToolClient"]


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with running(load("catch"), environment_surfaces={"openenv": openenv_surface}) as serving:
        yield serving


@pytest.mark.parametrize("release", RELEASES)
async def test_each_client_sees_what_every_other_way_shows(gateway: RunningGateway, release: str):
    program = str(__file__).replace("bridges/test_openenv_clients.py", "support/openenv_client.py")
    url = f"{gateway.url}/environments/catch/openenv"
    process = await asyncio.create_subprocess_exec(
        openenv_python(release), program, url, ",".join(MOVES), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(patient(60)):
        output, _ = await process.communicate()
    assert process.returncode == 0
    told = {line["client"]: line for line in map(json.loads, output.splitlines())}
    assert list(told) == CLIENTS
    with Rollouts("catch").open(seed=3) as rollout:
        texts = [rollout.observation.text]
        texts += [str(rollout.call("move", {"direction": move}).content[0]["text"]) for move in MOVES]
        rewards = list(rollout.rewards)
    for name in CLIENTS[:2]:
        assert told[name]["texts"] == texts
        assert told[name]["rewards"] == rewards
        assert (told[name]["first_reward"], told[name]["done"], told[name]["steps"]) == (None, True, len(MOVES))
    assert "The episode is over" in told["GenericEnvClient"]["refused"]
    tools = told["MCPToolClient"]
    assert (tools["texts"][1:], tools["rewards"]) == (texts[1:-1], rewards[:-1])
    assert (tools["data"], tools["steps"]) == (texts[-1], len(MOVES))
    assert [json.dumps(schema) for schema in tools["schemas"]] == [
        json.dumps(tool["inputSchema"]) for tool in load("catch").listing
    ]
