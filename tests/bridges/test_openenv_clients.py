"""The clients of two releases of OpenEnv play our environments, with the URL changed and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import RunningGateway, running
from openenv_releases import NEW, RELEASES, openenv_python
from patience import patient
from pydantic import BaseModel

from envport import Environment, Step, Task, tool
from envport.registry import EnvironmentDefinition, load
from envport_bridges.openenv import openenv_surface
from envport_bridges.rollouts import Rollouts

MOVES = ["left", "left", "right", "right", "right", "stay", "right", "left", "right"]
CLIENTS = ["GenericEnvClient", "GenericEnvClient.sync", "MCPToolClient"]


class Seen(BaseModel):
    """What OpenEnv's environment of OpenSpiel's games shows."""

    info_state: list[float]
    legal_actions: list[int]
    game_phase: str = "playing"


class SpielCatch(Environment):
    """OpenSpiel's catch, in the words of OpenEnv's environment of it."""

    def reset(self, *, seed: int, task: Task | None) -> Seen:
        self._row, self._ball, self._paddle = 0, seed % 5, 2
        return self._seen()

    @tool
    def step(self, action_id: int, game_name: str = "catch", game_params: dict[str, Any] | None = None) -> Step[Seen]:
        """Move the paddle."""
        self._row += 1
        self._paddle = min(4, max(0, self._paddle + action_id - 1))
        over = self._row == 9
        caught = 1.0 if self._paddle == self._ball else -1.0
        return Step(self._seen(), reward=caught if over else 0.0, terminated=over)

    def _seen(self) -> Seen:
        board = [0.0] * 50
        board[self._row * 5 + self._ball] = board[45 + self._paddle] = 1.0
        return Seen(info_state=board, legal_actions=[0, 1, 2])


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    environments = load("catch"), EnvironmentDefinition("spiel", SpielCatch)
    with running(*environments, environment_surfaces={"openenv": openenv_surface}) as serving:
        yield serving


async def printed(release: str, program: str, *words: str) -> list[Any]:
    """What a program of ours prints that runs in an environment of OpenEnv's."""
    file = Path(__file__).parents[1] / "support" / program
    process = await asyncio.create_subprocess_exec(
        openenv_python(release), file, *words, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(patient(60)):
        output, _ = await process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in output.splitlines()]


async def test_the_typed_client_of_trl_s_script_reads_its_own_fields(gateway: RunningGateway):
    told = await printed(NEW, "openenv_typed_client.py", f"{gateway.url}/environments/spiel/openenv")
    assert [(it["reward"], it["done"], it["steps"]) for it in told] == [(1.0, True, 9)] * 3
    assert all(sum(it["last"]) == 1.0 for it in told)


@pytest.mark.parametrize("release", RELEASES)
async def test_each_client_sees_what_every_other_way_shows(gateway: RunningGateway, release: str):
    url = f"{gateway.url}/environments/catch/openenv"
    told = {line["client"]: line for line in await printed(release, "openenv_client.py", url, ",".join(MOVES))}
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
