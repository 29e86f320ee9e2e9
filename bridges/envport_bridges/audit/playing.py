"""The episodes of an audit, played in this process."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import anyio
from pydantic_core import to_json

from envport.definition import EnvironmentDefinition
from envport.environment import Solution
from envport.episodes import Episode, Episodes, Found, Limits, OpenRequest
from envport.errors import EpisodeFailed, EpisodeOver, RequestError
from envport.types import Choice, LegalCall, Task
from envport_bridges.audit.players import AuditPlayer, Table, follow

__all__ = ["Auditorium", "Played", "Start", "replaying"]

_PRINCIPAL = "audit"
_SIDE_BY_SIDE = 4
# Enough for every episode of an audit, with nobody else there.
_LIMITS = Limits(max_episodes=1_000, idle_seconds=24 * 3600.0)


@dataclass(frozen=True)
class Start:
    """What is played.

    Attributes:
        split: The split; `None` if the environment has no tasks.
        task: Index of the task.
        seed: The seed.
        name: The task's id, or the seed.
    """

    split: str | None
    task: int | None
    seed: int
    name: str


@dataclass(frozen=True)
class Played:
    """An episode of an audit.

    Attributes:
        player: Who played it.
        start: What was played.
        calls: The calls that were made.
        reward: Its reward; 0 if it has none. `None` if it is lost.
        reason: Why it ended.
        fault: Who owns the fault that cut it short, if there was one.
        over: Whether the environment ended it, by itself.
        seen: SHA-256 of all that the player saw.
        opening: Seconds that opening it took.
        playing: Seconds that the calls took.
    """

    player: AuditPlayer
    start: Start
    calls: tuple[LegalCall, ...]
    reward: float | None
    reason: str
    fault: str | None
    over: bool
    seen: str
    opening: float = 0.0
    playing: float = 0.0


class Auditorium:
    """Plays the episodes of an audit. Made by `open`.

    Args:
        definition: The environment.
        episodes: Its running table of episodes.
        most_calls: The most calls of an episode.
    """

    def __init__(self, definition: EnvironmentDefinition, episodes: Episodes, most_calls: int):
        self._definition = definition
        self._episodes = episodes
        self._most_calls = most_calls

    @classmethod
    @asynccontextmanager
    async def open(cls, definition: EnvironmentDefinition, most_calls: int) -> AsyncGenerator[Auditorium]:
        """Run a table of episodes for the audit."""
        episodes = Episodes({definition.name: definition}, _LIMITS)
        async with episodes.run():
            yield cls(definition, episodes, most_calls)

    def starts(self, number: int, seed: int) -> list[Start]:
        """What is played: tasks of the first split, drawn by the seed, or as many seeds."""
        split = self._definition.default_split
        if split is None:
            return [Start(None, None, seed + index, f"seed {seed + index}") for index in range(number)]
        count = self._definition.num_tasks(split)
        indices = sorted(Random(seed).sample(range(count), min(number, count)))
        return [Start(split, index, seed + index, self._definition.task(split, index).id) for index in indices]

    def solution(self, start: Start) -> Solution | None:
        """The reference solution of what is played, if the environment has one."""
        return self._definition.prototype.reference_solution(self._task(start))

    def cheats(self, start: Start) -> Mapping[str, Sequence[LegalCall]]:
        """The cheats that the environment names for what is played."""
        return self._definition.prototype.cheats(self._task(start))

    def _task(self, start: Start) -> Task | None:
        return self._definition.task(start.split, start.task) if start.split and start.task is not None else None

    async def play(self, player: AuditPlayer, starts: Sequence[Start]) -> list[Played]:
        """Play one episode of each, a few side by side."""
        played: dict[Start, Played] = {}
        limiter = anyio.CapacityLimiter(_SIDE_BY_SIDE)

        async def play_one(start: Start) -> None:
            async with limiter:
                played[start] = await self._play(player, start)

        async with anyio.create_task_group() as tasks:
            for start in starts:
                tasks.start_soon(play_one, start)
        return [played[start] for start in starts]

    async def _play(self, player: AuditPlayer, start: Start) -> Played:
        began = time.perf_counter()
        asked = OpenRequest(self._definition.name, _PRINCIPAL, Choice(start.split, start.task, start.seed))
        try:
            episode = await self._episodes.open_episode(asked)
        except EpisodeFailed as error:
            return Played(player, start, (), None, error.reason or "environment_error", error.fault, False, "")
        opened = time.perf_counter()
        table = Table(episode.start.tools.listing, Random(start.seed))
        seen = hashlib.sha256(to_json(episode.first_observation))
        try:
            over = await self._make_calls(player, episode, table, seen)
            played = time.perf_counter()
            info = await self._episodes.finish(episode.handle, _PRINCIPAL)
        finally:
            await self._episodes.close(episode.handle, _PRINCIPAL)
        outcome = info.outcome
        assert outcome is not None
        reward = None if outcome.lost else info.reward or 0.0
        fault = outcome.fault if outcome.lost else None
        times = (opened - began, played - opened)
        return Played(player, start, (*table.made,), reward, outcome.reason, fault, over, seen.hexdigest(), *times)

    async def _make_calls(self, player: AuditPlayer, episode: Episode, table: Table, seen: Any) -> bool:
        """Have the player make its calls. Returns whether the environment ended the episode."""
        found, says = Found(episode.handle, _PRINCIPAL, episode.spec), True
        while len(table.made) < self._most_calls:
            try:
                if says:
                    table.legal = await self._episodes.legal_calls(found)
                    says = table.legal is not None
                call = player.move(table)
                if call is None:
                    return False
                table.made.append(call)
                result = await self._episodes.call(found, *call)
                seen.update(to_json(result.observation))
                if result.terminated or result.truncated:
                    return True
            except (EpisodeFailed, EpisodeOver):
                return False
            except RequestError as refused:
                # A call that does not fit its schema.
                seen.update(str(refused).encode())
        return False


def replaying(played: Played) -> AuditPlayer:
    """A player that makes the same calls again."""
    return AuditPlayer("replay", played.player.kind, follow(Solution(played.calls)))
