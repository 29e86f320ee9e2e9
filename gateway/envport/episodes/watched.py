"""A table of episodes with metrics, traces, and the episode's name in log lines."""

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
    """Wraps an `EpisodeTable` to time, count and trace its operations.

    Args:
        table: The table.
        observer: Notified of opens, resets, calls and refusals. The episodes themselves report their ends.
        clock: The clock.
    """

    def __init__(self, table: EpisodeTable, observer: EpisodeObserver | None = None, clock: Clock | None = None):
        self._table = table
        self._observer = observer or Unobserved()
        self._clock = clock or SystemClock()

    @property
    def environments(self) -> Mapping[str, EnvironmentDefinition]:
        """The environments that are served, by name."""
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
        """Whether this gateway refuses new episodes."""
        return self._table.draining

    @property
    def preparations(self) -> Mapping[str, Preparation]:
        """The preparation status of each environment, by name."""
        return self._table.preparations

    def take_no_more(self) -> None:
        """Refuse new episodes from now on."""
        self._table.take_no_more()

    async def drain(self, seconds: float) -> None:
        """Refuse new episodes, and wait for the episodes that would be lost with this gateway."""
        await self._table.drain(seconds)

    def run(self) -> AbstractAsyncContextManager[None]:
        """Run the background tasks."""
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
        # An unknown name raises here, so that it never becomes a metrics label.
        name = self._table.environment(environment).name
        observer = self._observer
        with Operation("episode.open", name, None, None, self._clock, observer.opened, observer.refused) as operation:
            opening = await self._table.open(
                environment, principal=principal, split=split, task=task, seed=seed, reward_in_meta=reward_in_meta
            )
            operation.gave_episode(opening.handle, opening.seed)
            return opening

    def find(self, handle: str, principal: str) -> Found:
        """Find an episode by its handle, to play it."""
        return self._table.find(handle, principal)

    async def opening(self, found: Found) -> Opening:
        """The prompt, first observation and seed of the episode."""
        return await self._table.opening(found)

    async def call(
        self,
        found: Found,
        tool: str,
        arguments: Mapping[str, Any],
        progress: ProgressSink | None = None,
        call_id: str | None = None,
    ) -> CallResult:
        """Call a tool. Calls of one episode run one after the other."""
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
        """Restart the idle timer of an episode."""
        return await self._table.keep_alive(found)

    async def reset(
        self,
        found: Found,
        *,
        split: str | None = None,
        task: ChosenTask | None = None,
        seed: int | None = None,
    ) -> Opening:
        """Start an episode over. It keeps its task and seed unless others are given."""
        subject = EpisodeSubject(found.spec.name, found.handle, found.principal)
        observer = self._observer
        with Operation(
            "episode.reset", subject.environment, subject, None, self._clock, observer.reset, observer.refused
        ) as operation:
            opening = await self._table.reset(found, split=split, task=task, seed=seed)
            operation.gave_episode(opening.handle, opening.seed)
            return opening

    async def close(self, handle: str, principal: str) -> EpisodeInfo:
        """Close an episode now. Its environment is freed as soon as no call is running in it."""
        return await self._table.close(handle, principal)

    async def trajectory(self, handle: str, principal: str) -> Trajectory:
        """The trajectory of an episode."""
        return await self._table.trajectory(handle, principal)
