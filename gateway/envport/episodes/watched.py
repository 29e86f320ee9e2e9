"""A table of episodes that is watched: counted, traced, and named in log lines."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from envport.clock import Clock, SystemClock
from envport.episodes.base import ChosenTask, EpisodeTable, Found, Opening
from envport.episodes.limits import Limits
from envport.episodes.observer import EpisodeObserver, Unobserved
from envport.episodes.operation import Operation
from envport.episodes.play import CallResult
from envport.episodes.readiness import Preparation
from envport.registry import EnvironmentDefinition
from envport.runtimes import ProgressSink
from envport.telemetry.subject import EpisodeSubject
from envport.types import EpisodeInfo, Trajectory

__all__ = ["WatchedTable"]


class WatchedTable:
    """An `EpisodeTable` that tells how what is asked of another one goes.

    Args:
        table: The table.
        observer: Who is told of opens, resets, calls and refusals. Of ends, the episodes themselves tell.
        clock: The time.
    """

    def __init__(self, table: EpisodeTable, observer: EpisodeObserver | None = None, clock: Clock | None = None):
        self._table = table
        self._observer = observer or Unobserved()
        self._clock = clock or SystemClock()

    @property
    def environments(self) -> Mapping[str, EnvironmentDefinition]:
        """What can be played."""
        return self._table.environments

    @property
    def limits(self) -> Limits:
        """Limits on episodes."""
        return self._table.limits

    @property
    def replicated(self) -> bool:
        """Whether other gateways serve the same episodes."""
        return self._table.replicated

    @property
    def live(self) -> int:
        """How many episodes hold resources."""
        return self._table.live

    @property
    def draining(self) -> bool:
        """Whether new episodes are no longer taken here."""
        return self._table.draining

    @property
    def preparations(self) -> Mapping[str, Preparation]:
        """How far the preparing of each environment is, by its name."""
        return self._table.preparations

    def take_no_more(self) -> None:
        """Refuse new episodes from now on."""
        self._table.take_no_more()

    async def drain(self, seconds: float) -> None:
        """Refuse new episodes, and wait for those that would be lost."""
        await self._table.drain(seconds)

    def run(self) -> AbstractAsyncContextManager[None]:
        """Run what has to run beside the requests."""
        return self._table.run()

    def environment(self, name: str) -> EnvironmentDefinition:
        """The environment of that name."""
        return self._table.environment(name)

    async def open(
        self,
        environment: str,
        *,
        principal: str,
        split: str | None = None,
        task: ChosenTask | None = None,
        seed: int | None = None,
        reward_in_meta: bool = False,
    ) -> Opening:
        """Open an episode and reset its environment."""
        # Names that are nobody's environment are nobody's label.
        name = self._table.environment(environment).name
        observer = self._observer
        with Operation("episode.open", name, None, None, self._clock, observer.opened, observer.refused) as operation:
            opening = await self._table.open(
                environment, principal=principal, split=split, task=task, seed=seed, reward_in_meta=reward_in_meta
            )
            operation.gave_episode(opening.handle, opening.seed)
            return opening

    def find(self, handle: str, principal: str) -> Found:
        """The episode of that handle, for playing it."""
        return self._table.find(handle, principal)

    async def opening(self, found: Found) -> Opening:
        """What the episode began with."""
        return await self._table.opening(found)

    async def call(
        self,
        found: Found,
        tool: str,
        arguments: Mapping[str, Any],
        progress: ProgressSink | None = None,
        call_id: str | None = None,
    ) -> CallResult:
        """Call a tool, after the calls that came before."""
        subject = EpisodeSubject(found.spec.name, found.handle, found.principal)
        observer = self._observer
        with Operation(
            "episode.call", subject.environment, subject, tool, self._clock, observer.called, observer.refused
        ) as operation:
            result = await self._table.call(found, tool, arguments, progress, call_id)
            operation.gave(result)
            return result

    async def info(self, handle: str, principal: str) -> EpisodeInfo:
        """The state of an episode."""
        return await self._table.info(handle, principal)

    async def keep_alive(self, found: Found) -> EpisodeInfo:
        """Start the idle limit of an episode anew."""
        return await self._table.keep_alive(found)

    async def reset(
        self,
        found: Found,
        *,
        split: str | None = None,
        task: ChosenTask | None = None,
        seed: int | None = None,
    ) -> Opening:
        """Start an episode over: with the same task and seed, unless others are given."""
        subject = EpisodeSubject(found.spec.name, found.handle, found.principal)
        observer = self._observer
        with Operation(
            "episode.reset", subject.environment, subject, None, self._clock, observer.reset, observer.refused
        ) as operation:
            opening = await self._table.reset(found, split=split, task=task, seed=seed)
            operation.gave_episode(opening.handle, opening.seed)
            return opening

    async def close(self, handle: str, principal: str) -> EpisodeInfo:
        """Close an episode now, and free its environment as soon as no call is running in it."""
        return await self._table.close(handle, principal)

    async def trajectory(self, handle: str, principal: str) -> Trajectory:
        """What happened in an episode."""
        return await self._table.trajectory(handle, principal)
