"""Episodes go on after their gateway was killed and started again on the same store."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mcp
import pytest
from command_line import Served, player, refused, text
from harness import running
from resumed_environments import STEPS, rolled

from envport import Client
from envport.client.calls import Call
from envport.errors import EpisodeFailed, EpisodeOver
from envport.registry import load
from envport.trajectories import EpisodeFilter
from envport.types import EpisodeInfo, OpenedEpisode

MADE = str(Path(__file__).parents[1] / "support" / "resumed_environments.py")
BUILT_IN = ("catch", "counter", "maze")
WALKS = ("Walk", "WalkInThread", "WalkInProcess", "WalkInSandbox")
DICE = ("Dice", "DiceInThread", "DiceInProcess", "DiceInSandbox", "AsyncDice")
# How often each is played, in the long test.
SHARES = {"catch": 20, "counter": 20, "maze": 17, "Walk": 9, "WalkInThread": 9, "WalkInProcess": 4, "Dice": 6} | {
    "DiceInThread": 6,
    "DiceInProcess": 3,
    "AsyncDice": 2,
    "WalkInSandbox": 1,
    "DiceInSandbox": 1,
    "Coin": 2,
}
CLIENTS = 16


def references(*names: str) -> list[str]:
    return [name if name in BUILT_IN else f"{name}={MADE}:{name}" for name in names]


@dataclass
class Played:
    """An episode, and what its player saw."""

    name: str
    seed: int
    opened: OpenedEpisode
    seen: list[tuple[str, float | None]] = field(default_factory=list)

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        if self.name == "catch":
            return [("move", {"direction": "stay"})] * 9
        if self.name == "counter":
            return [("count", {})] * STEPS
        if self.name == "maze":
            return [("move", {"direction": way}) for way in ("up", "left", "down", "right")] * 2
        if self.name in WALKS:
            return [("step", {"by": number}) for number in range(STEPS)]
        return [("roll" if self.name in DICE else "flip", {})] * STEPS

    async def play(self, first: int, last: int) -> None:
        """Make the calls from one number to another, each with an id."""
        url, token = self.opened.mcp_url, self.opened.token
        async with player(url, headers={"Authorization": f"Bearer {token}"}) as client:
            for number in range(first, last):
                self.seen.append(await self.call(client, number))

    async def call(self, client: mcp.Client, number: int) -> tuple[str, float | None]:
        tool, arguments = self.calls[number]
        result = await client.call_tool(tool, arguments, meta={"envport/call_id": f"call {number}"})
        assert not result.is_error, (self.name, number, text(result))
        assert result.meta is not None
        return text(result), result.meta.get("envport/reward")

    def would_have_seen(self, info: EpisodeInfo) -> list[tuple[str, float | None]]:
        """What comes in an episode that nothing interrupts."""
        if self.name in DICE:
            state, states = int(self.opened.observation.text), list[int]()
            for _ in self.calls:
                states.append(state := rolled(state))
            return [(str(state), float(state % 6)) for state in states]
        spec = load(references(self.name)[0].partition("=")[2] or self.name)
        made: Any = spec.make()
        made.rng = random.Random(self.seed)
        made.reset(seed=self.seed, task=info.task)
        seen: list[tuple[str, float | None]] = []
        for tool, arguments in self.calls:
            step = getattr(made, tool)(**arguments)
            seen.append((str(getattr(step, "observation", step)), getattr(step, "reward", None)))
        return seen


async def all_at_once(work: list[Any]) -> None:
    limit = asyncio.Semaphore(CLIENTS)

    async def one(it: Any) -> None:
        async with limit:
            await it

    await asyncio.gather(*(one(it) for it in work))


def serve(store: Path, names: tuple[str, ...], *words: str, port: int = 0, **variables: str) -> Served:
    where = ("--store", str(store), "--port", str(port), "--resume-episodes", "--log-level", "warning")
    # A program of its own: the kill has to reach the gateway, and not what forks it.
    return Served(*references(*names), *where, *words, fresh=True, **variables)


def shares(*, long: bool) -> Mapping[str, int]:
    return SHARES if long else dict.fromkeys(SHARES, 1) | {"WalkInSandbox": 0, "DiceInSandbox": 0}


@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_episodes_go_on_after_the_gateway_was_killed(tmp_path: Path, long: bool) -> None:
    names = tuple(name for name, share in shares(long=long).items() if share)
    episodes: list[Played] = []
    with serve(tmp_path, names) as served, Client(served.url) as control:
        for name, share in shares(long=long).items():
            for number in range(share):
                labels = {"run": name, "sample": str(number)}
                opened = control.open(name, seed=number + 3, reward_in_meta=True, mint_token=True, labels=labels)
                episodes.append(Played(name, number + 3, opened))
        await all_at_once([one.play(0, len(one.calls) // 2) for one in episodes])
        served.process.send_signal(signal.SIGKILL)
        served.process.wait()
        port = int(served.url.rpartition(":")[2])
    with serve(tmp_path, names, port=port) as served, Client(served.url) as control:
        lost = [one for one in episodes if one.name == "Coin"]
        kept = [one for one in episodes if one.name != "Coin"]
        await all_at_once([sent_again(one) for one in kept])
        await all_at_once([one.play(len(one.calls) // 2, len(one.calls)) for one in kept])
        for one in kept:
            info = control.episode(one.opened.episode_id)
            assert one.seen == one.would_have_seen(info)
            assert info.labels["run"] == one.name
            assert info.steps == len(one.calls)
            assert info.rewards == [reward for _, reward in one.seen]
            assert (info.status == "terminated") == (one.name in (*WALKS, "catch"))
            steps = control.trajectory(one.opened.episode_id).steps
            assert [step.index for step in steps] == list(range(1, len(one.calls) + 1))
            assert [step.observation.text for step in steps] == [words for words, _ in one.seen]
        for one in lost:
            outcome = control.episode(one.opened.episode_id).outcome
            assert outcome is not None
            assert (outcome.status, outcome.reason, outcome.fault) == ("failed", "shutdown", "infrastructure")
            assert "'Coin' has neither snapshot() and restore(), nor does it declare deterministic" in outcome.message


async def sent_again(episode: Played) -> None:
    """The client has not heard the last answer, and sends its call again."""
    async with player(episode.opened.mcp_url, headers={"Authorization": f"Bearer {episode.opened.token}"}) as client:
        assert await episode.call(client, len(episode.seen) - 1) == episode.seen[-1]
