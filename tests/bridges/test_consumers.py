"""One environment, every consumer: the same calls earn the same reward, whoever makes them.

verifiers v1 is played whole: its own environment, interception, chat program and MCP client.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apart import python_of
from harness import ERAS, Era, RunningGateway, connect, running
from nemo_gym_agent import NemoGymAgent, scripted
from openenv_releases import NEW, openenv_python
from ors_player import shared_player
from patience import patient
from wheels import CLIENT, unpacked

from envport import AsyncClient, Environment, Step, Task, tool
from envport.access import Access
from envport.registry import EnvironmentDefinition, load
from envport_bridges.nemo_gym import nemo_gym_surface
from envport_bridges.nemo_gym.rows import RowsWanted, rows_of
from envport_bridges.openenv import openenv_surface
from envport_bridges.ors import ors_root_surface, ors_surface
from envport_bridges.rollouts import AsyncRollouts, Rollouts, RolloutTarget

TOKEN = "a-token-that-is-long-enough"
PLAYER = Path(__file__).parents[1] / "support" / "verifiers_player.py"
MOVES = ["right", "right", "stay", "left", "stay", "stay", "stay", "stay", "stay"]


class Breaks(Environment):
    """Breaks at the second call. It has no tasks."""

    instructions = "Press twice."

    def reset(self, *, seed: int, task: Task | None) -> str:
        self._pressed = 0
        return f"seed {seed}"

    @tool
    def press(self) -> Step[str]:
        """Press."""
        self._pressed += 1
        if self._pressed == 2:
            raise RuntimeError("broken")
        return Step("pressed", reward=1.0)


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    surfaces = {"openenv": openenv_surface, "ors": ors_surface, "nemo_gym": nemo_gym_surface}
    with running(
        load("catch"),
        EnvironmentDefinition("breaks", Breaks),
        access=Access.load({"ENVPORT_TOKEN": TOKEN}),
        environment_surfaces=surfaces,
        root_surface=ors_root_surface,
    ) as serving:
        yield serving


@pytest.fixture(scope="module")
def verifiers(gateway: RunningGateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Plays tasks; all runs share one process."""
    python = python_of("verifiers", "0.4.0")
    folder = tmp_path_factory.mktemp("client")
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            [python, PLAYER],
            env={"PYTHONPATH": str(unpacked(CLIENT, folder)), "ENVPORT_TOKEN": TOKEN, "HOME": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
        )

        def run(name: str, calls: list[tuple[str, dict[str, Any]]], tasks: int = 1, **settings: Any) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            taskset = {"url": f"{gateway.url}/environments/{name}", **settings}
            process.stdin.write(json.dumps({"calls": calls, "tasks": tasks, "taskset": taskset}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            assert line, (folder / "errors").read_text()
            return json.loads(line)

        try:
            yield run
        finally:
            process.kill()
            process.communicate(timeout=patient(10))


CALLS = [("move", {"direction": move}) for move in ["right", *["stay"] * 8]]
TASKS = range(2)
"""Indices of tasks; each is played with the seed of the same number, which all of them can choose."""
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def in_process() -> list[float | None]:
    rewards: list[float | None] = []
    for number in TASKS:
        with Rollouts("catch").open(split="train", task=number, seed=number) as rollout:
            for name, arguments in CALLS:
                rollout.call(name, arguments)
            rewards.append(rollout.finish())
    return rewards


async def over_mcp(gateway: RunningGateway, era: Era) -> list[float | None]:
    rewards: list[float | None] = []
    async with AsyncClient(gateway.url, token=TOKEN) as control:
        for number in TASKS:
            opened = await control.open("catch", split="train", task=number, seed=number)
            async with connect(opened.mcp_url, era, HEADERS) as client:
                for name, arguments in CALLS:
                    await client.call_tool(name, arguments)
            rewards.append((await control.finish(opened.episode_id)).reward)
    return rewards


async def over_the_channel(gateway: RunningGateway) -> list[float | None]:
    rollouts = await AsyncRollouts.connect(RolloutTarget(f"{gateway.url}/environments/catch", token=TOKEN))
    rewards: list[float | None] = []
    for number in TASKS:
        rollout = await rollouts.open(split="train", task=number, seed=number)
        for name, arguments in CALLS:
            await rollout.call(name, arguments)
        rewards.append(await rollout.finish())
    return rewards


def over_openenv(gateway: RunningGateway) -> list[float | None]:
    episodes = [{"split": "train", "task": number, "seed": number} for number in TASKS]
    asked = {"url": f"{gateway.url}/environments/catch/openenv", "token": TOKEN, "calls": CALLS, "episodes": episodes}
    done = subprocess.run(
        [openenv_python(NEW), PLAYER.with_name("openenv_scripted.py")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [sum(json.loads(line)) for line in done.stdout.splitlines()]


def over_ors(gateway: RunningGateway) -> list[float | None]:
    rewards: list[float | None] = []
    for number in TASKS:
        with shared_player().session(gateway.url, "catch", key=TOKEN, split="train", index=number) as seat:
            rewards.append([seat.call(name, **arguments)["reward"] for name, arguments in CALLS][-1])
    return rewards


async def over_nemo_gym(gateway: RunningGateway) -> list[float | None]:
    rollouts = await AsyncRollouts.connect("catch")
    rewards: list[float | None] = []
    async for row in rows_of(rollouts, RowsWanted(split="train", rows=len(TASKS))):
        agent = NemoGymAgent(f"{gateway.url}/environments/catch/nemo_gym", HEADERS)
        agent.seed(row)
        await asyncio.to_thread(agent.play, row, scripted(CALLS))
        rewards.append(agent.verify(row).json()["reward"])
    return rewards


async def test_the_same_calls_earn_the_same_reward_whoever_makes_them(gateway: RunningGateway):
    expected = in_process()
    assert set(expected) == {-1.0, 1.0}
    for era in ERAS:
        assert await over_mcp(gateway, era) == expected
    assert await over_the_channel(gateway) == expected
    assert over_openenv(gateway) == expected
    assert over_ors(gateway) == expected
    assert await over_nemo_gym(gateway) == expected
    assert gateway.gateway.table.live == 0


# Each task is a process of verifiers' that imports for seconds; the next test shows the reward of one.
@pytest.mark.slow
def test_verifiers_earn_the_same_reward(gateway: RunningGateway, verifiers: Callable[..., Any]):
    told = verifiers("catch", CALLS, tasks=len(TASKS), split="train")["episodes"]
    assert [it["rewards"]["episode_reward"] for it in told] == in_process()
    assert gateway.gateway.table.live == 0


def test_an_episode_is_what_every_other_way_shows(verifiers: Callable[..., Any], gateway: RunningGateway):
    run = verifiers("catch", [("move", {"direction": move}) for move in MOVES], seed=6, split="test")
    with Rollouts("catch").open(split="test", task=0, seed=6) as rollout:
        opening = [rollout.prompt, rollout.observation.text]
        texts = [str(rollout.call("move", {"direction": move}).content[0]["text"]) for move in MOVES]
        reward = rollout.reward
        tools = rollout.tools
    told = run["episodes"][0]
    assert told["ok"], told
    assert told["key"] == "test/" + load("catch").splits["test"][0].id + "/6"
    assert (told["rewards"], told["metrics"]) == ({"episode_reward": reward}, {"episode_steps": 9.0})
    # The environment's end is the end: the model is not asked again.
    assert told["stopped"] == "episode_over"
    asked = run["asked"]
    assert len(asked) == len(MOVES)
    assert asked[0]["messages"][0]["content"] == "\n\n".join(opening)
    assert [it["content"] for it in asked[-1]["messages"] if it["role"] == "tool"] == texts[:-1]
    (shown,) = [it["function"] for it in asked[0]["tools"]]
    assert json.dumps(shown["parameters"]) == json.dumps(tools[0]["inputSchema"])
    assert (shown["name"], shown["description"]) == (tools[0]["name"], tools[0]["description"])
    assert "reward" not in json.dumps(asked)
    assert gateway.gateway.table.live == 0


def dry_run(url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """verifiers' command as our page says it, without a model."""
    words = ["envport-taskset", "--env.taskset.url", url, "--env.agent.runtime.type", "subprocess", "--dry-run"]
    return subprocess.run(
        [python_of("verifiers", "0.4.0").with_name("vf-eval"), *words],
        env={"PYTHONPATH": str(CLIENT), "HOME": str(folder), "COLUMNS": "200"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )


@pytest.mark.slow
def test_the_command_of_verifiers_takes_it(tmp_path: Path):
    url = "http://127.0.0.1:9/environments/catch"
    done = dry_run(url, tmp_path)
    assert done.returncode == 0, done.stderr
    (written,) = tmp_path.rglob("eval.json")
    assert json.loads(written.read_text())["env"]["taskset"]["url"] == url


@pytest.mark.slow
def test_the_command_of_verifiers_says_what_is_no_environment(tmp_path: Path):
    refused = dry_run("http://127.0.0.1:9/catch", tmp_path)
    assert refused.returncode != 0
    assert "does not name an environment of a gateway" in refused.stdout + refused.stderr


def test_an_episode_that_is_lost_has_no_reward(verifiers: Callable[..., Any], gateway: RunningGateway):
    (told,) = verifiers("breaks", [("press", {})] * 3)["episodes"]
    assert not told["ok"]
    assert told["rewards"] == {"episode_reward": None}
    assert "EpisodeFailed: the episode was lost" in " ".join(told["errors"])
    assert gateway.gateway.table.live == 0


@pytest.mark.slow
def test_episodes_beside_each_other_are_their_own(verifiers: Callable[..., Any]):
    run = verifiers("catch", [("move", {"direction": "stay"})] * 9, tasks=4)
    seeds = [told["key"].rpartition("/")[2] for told in run["episodes"]]
    assert seeds == ["0", "1", "2", "3"]
    for number, told in enumerate(run["episodes"]):
        with Rollouts("catch").open(task=number, seed=number) as rollout:
            while rollout.outcome is None:
                rollout.call("move", {"direction": "stay"})
            assert told["rewards"] == {"episode_reward": rollout.reward}


@pytest.mark.slow
def test_an_agent_that_stops_has_what_it_earned(verifiers: Callable[..., Any], gateway: RunningGateway):
    (told,) = verifiers("breaks", [("press", {})])["episodes"]
    assert (told["ok"], told["key"], told["rewards"]) == (True, "None/None/0", {"episode_reward": 1.0})
    assert gateway.gateway.table.live == 0
