"""The table of episodes: opens them within limits, finds them by handle, and ends idle ones."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from envport.clock import Clock, SystemClock
from envport.environment import RuntimeKind
from envport.episodes.admission import Admission
from envport.episodes.choosing import checked_seed, choose
from envport.episodes.episode import Episode
from envport.episodes.limits import Limits
from envport.episodes.observer import EpisodeObserver, Unobserved
from envport.episodes.readiness import Readiness
from envport.episodes.states import GONE
from envport.errors import (
    EpisodeFailed,
    UnknownEpisode,
    WorkerLost,
)
from envport.registry import EnvironmentDefinition, served
from envport.runtimes import Runtime, kind_for, runtime_for
from envport.trajectories import MemoryTrajectories, TrajectoryStore
from envport.types import Outcome, Status, Task

__all__ = ["Episodes"]

logger = logging.getLogger(__name__)

# At shutdown, for all episodes together.
_RELEASE_SECONDS = 10.0


class Episodes:
    """All episodes of a gateway.

    Args:
        environments: The environments that are served, by name.
        limits: Limits on episodes.
        clock: The clock.
        trajectories: Where calls are recorded.
        runtime: The runtime for all environments. If not given, each runs in the runtime that it declares.
        new_handle: Makes the handle of an episode from the environment's name and the principal.
        observer: Notified when episodes end. For opens, resets and calls, see `WatchedTable`.

    Raises:
        ConfigurationError: A limit is set for an environment that is not served.
    """

    def __init__(
        self,
        environments: Mapping[str, EnvironmentDefinition],
        limits: Limits | None = None,
        clock: Clock | None = None,
        trajectories: TrajectoryStore | None = None,
        runtime: RuntimeKind | None = None,
        new_handle: Callable[[str, str], str] | None = None,
        observer: EpisodeObserver | None = None,
    ):
        self.environments = environments
        self.limits = limits or Limits()
        self.limits.require(environments)
        self.trajectories = trajectories or MemoryTrajectories()
        self._clock = clock or SystemClock()
        self._observer = observer or Unobserved()
        self._episodes: dict[str, Episode] = {}
        # Handles of ended episodes, in the order in which they ended.
        self._ended: dict[str, None] = {}
        self._pending: set[asyncio.Task[None]] = set()
        # Handles of the episodes that hold a place of the admission.
        self._admitted: set[str] = set()
        self._admission = Admission(
            self.limits.max_episodes,
            self.limits.max_episodes_per_principal,
            self.limits.max_waiting,
            self.limits.wait_seconds,
            {spec.name: most for spec in environments.values() if (most := self.limits.episodes(spec)) is not None},
        )
        self._new_handle = new_handle or _random_handle
        self.readiness = Readiness(environments.values(), self._prepare, self._clock)
        self._kind: RuntimeKind | None = runtime
        self._runtimes: dict[RuntimeKind, Runtime] = {}
        self._tasks: TaskGroup | None = None

    @property
    def live(self) -> int:
        """How many episodes hold resources."""
        return self._admission.held

    @property
    def draining(self) -> bool:
        """Whether new episodes are refused."""
        return self._admission.closed

    @property
    def waiting(self) -> int:
        """How many requests wait for room."""
        return self._admission.waiting

    @property
    def runtimes(self) -> Mapping[RuntimeKind, Runtime]:
        """The runtimes in use, by name."""
        return self._runtimes

    def census(self) -> Counter[tuple[str, Status]]:
        """How many live episodes of each environment are in each status."""
        return Counter((episode.spec.name, episode.status) for episode in self._episodes.values() if episode.live)

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Run the reaper, and close every episode at the end."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._reap_forever)
            tasks.start_soon(self.readiness.run)
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await self._shut_down()
                self._tasks = None
                tasks.cancel_scope.cancel()

    def environment(self, name: str) -> EnvironmentDefinition:
        """Find an environment by its name.

        Raises:
            UnknownEnvironment: It is not served.
        """
        return served(self.environments, name)

    async def open(
        self,
        environment: str,
        *,
        principal: str,
        split: str | None = None,
        task: int | Task | Mapping[str, Any] | None = None,
        seed: int | None = None,
        reward_in_meta: bool = False,
        wait: bool = True,
    ) -> Episode:
        """Open an episode and reset its environment.

        Args:
            environment: Name of the environment.
            principal: Name of the principal that owns the episode.
            split: The split to take the task from; the first one if not given.
            task: Index of the task in the split, or a task that the caller supplies. If the environment has tasks
                and none is given, the seed selects one.
            seed: The seed; a random one is drawn if not given.
            reward_in_meta: Whether MCP results carry the reward in `_meta`.
            wait: Whether to wait for room.

        Raises:
            UnknownEnvironment: The environment is not served.
            UnknownTask: It has no such split or task.
            InvalidRequest: The seed or the task is malformed.
            AtCapacity: There was no room, or no place became free in time.
            Draining: New episodes are refused.
            EpisodeFailed: The environment broke.
        """
        spec = self.environment(environment)
        request = replace(choose(spec, split, task, seed), reward_in_meta=reward_in_meta)
        await self._admission.acquire(principal, spec.name, wait=wait)
        episode = Episode(
            self._new_handle(spec.name, principal),
            spec,
            request,
            principal=principal,
            runtime=self._runtime(spec),
            trajectories=self.trajectories,
            clock=self._clock,
            on_retired=self._retired,
            bounds=self.limits.bounds(spec),
            max_seconds=self.limits.seconds(spec),
            on_ended=self._note_end,
            on_lost=self._lost,
            on_over=self._over,
        )
        self._episodes[episode.handle] = episode
        self._admitted.add(episode.handle)
        try:
            await episode.open()
        except EpisodeFailed:
            raise
        except BaseException:
            # For example, the caller disconnected while the environment was being created.
            self.close_soon(episode)
            raise
        return episode

    def find(self, handle: str, principal: str) -> Episode:
        """Find an episode by its handle, to play it.

        Raises:
            UnknownEpisode: It never existed, has expired, was closed, or belongs to another principal.
        """
        episode = self._episodes.get(handle)
        if episode is None or episode.principal != principal or episode.status in GONE:
            raise UnknownEpisode
        return episode

    def look_up(self, handle: str, principal: str) -> Episode:
        """Find an episode by its handle, to read its state. Includes closed and expired ones while remembered.

        Raises:
            UnknownEpisode: It never existed, is forgotten, or belongs to another principal.
        """
        episode = self._episodes.get(handle)
        if episode is None or episode.principal != principal:
            raise UnknownEpisode
        return episode

    async def reset(
        self,
        episode: Episode,
        *,
        split: str | None = None,
        task: int | Task | Mapping[str, Any] | None = None,
        seed: int | None = None,
    ) -> None:
        """Start an episode over. It keeps its task and seed unless others are given.

        Raises:
            UnknownEpisode: It was closed or has expired.
            UnknownTask: There is no such split or task.
            AtCapacity: The episode had ended, and there is no room for another live one.
            Draining: The episode had ended, and new episodes are refused.
            EpisodeFailed: The environment broke.
        """
        before = episode.request
        request = replace(before, seed=before.seed if seed is None else checked_seed(seed))
        if task is not None or split is not None:
            request = replace(
                choose(episode.spec, split or before.split, task, request.seed),
                reward_in_meta=before.reward_in_meta,
            )
        try:
            await episode.reset(request, self._readmit)
            if episode.status in GONE:
                raise UnknownEpisode
        finally:
            if not episode.live:
                # It was closed in the meantime, or the caller disconnected: free its place.
                self._spawn(episode.release)

    def close_soon(self, episode: Episode) -> None:
        """Close an episode now. Its environment is freed as soon as no call is running in it."""
        episode.end("closed", "closed", "It was closed by its owner.")
        self._spawn(episode.release)

    def take_no_more(self) -> None:
        """Refuse new episodes from now on, including waiting requests. Open episodes can still be played."""
        self._admission.close()

    async def drain(self, seconds: float) -> None:
        """Refuse new episodes, and wait until the open ones have ended. After `seconds`, end the rest."""
        self.take_no_more()
        with anyio.move_on_after(seconds):
            await self._admission.emptied()
        for episode in self._end_all():
            self._spawn(episode.release)

    def _end_all(self) -> list[Episode]:
        live = [episode for episode in self._episodes.values() if episode.live]
        for episode in live:
            episode.end("closed", "shutdown", "The gateway was shut down.", infrastructure=True)
        return live

    async def _readmit(self, episode: Episode) -> None:
        if episode.handle in self._admitted or episode.status in GONE:
            return
        await self._admission.acquire(episode.principal, episode.spec.name)
        gone = episode.handle not in self._episodes or episode.status in GONE
        if gone or episode.handle in self._admitted:
            # It was closed or forgotten in the meantime, or another reset was faster.
            self._admission.release(episode.principal, episode.spec.name)
            if gone:
                raise UnknownEpisode
            return
        self._admitted.add(episode.handle)
        self._ended.pop(episode.handle, None)

    async def _shut_down(self) -> None:
        self.take_no_more()
        self._end_all()
        with anyio.move_on_after(_RELEASE_SECONDS):
            # Concurrently, because each may have to wait for its environment.
            async with anyio.create_task_group() as tasks:
                for episode in self._episodes.values():
                    tasks.start_soon(episode.release)
        for runtime in self._runtimes.values():
            await runtime.drain()

    def _runtime(self, spec: EnvironmentDefinition) -> Runtime:
        kind = kind_for(spec, self._kind)
        if kind not in self._runtimes:
            self._runtimes[kind] = runtime_for(kind)
        return self._runtimes[kind]

    async def _prepare(self, spec: EnvironmentDefinition) -> None:
        await self._runtime(spec).prepare(spec)

    def _note_end(self, episode: Episode, outcome: Outcome) -> None:
        self._observer.ended(episode.spec.name, outcome)
        # Failures are logged elsewhere, with their cause.
        if outcome.status != "failed":
            logger.info(
                "episode %s of environment %s ended as %s: %s",
                episode.handle,
                episode.spec.name,
                outcome.status,
                outcome.message,
                extra=episode.subject.fields(outcome.reason),
            )

    def _lost(self, episode: Episode, lost: WorkerLost) -> None:
        self._later(partial(episode.lose, lost))

    def _over(self, episode: Episode) -> asyncio.Task[None]:
        return self._later(episode.release)

    def _later(self, work: Callable[[], Any]) -> asyncio.Task[None]:
        """Start work where the task group cannot be used: outside any task, or before the table runs."""
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    def _retired(self, episode: Episode) -> None:
        """Free the place of an ended episode."""
        if episode.handle not in self._admitted:
            return
        self._admitted.remove(episode.handle)
        self._admission.release(episode.principal, episode.spec.name)
        self._ended[episode.handle] = None
        while len(self._ended) > self.limits.max_ended:
            self._forget_soon(next(iter(self._ended)))

    def _forget_soon(self, handle: str) -> None:
        self._ended.pop(handle, None)
        self._episodes.pop(handle, None)
        self._spawn(lambda: self.trajectories.forget(handle))

    def _spawn(self, work: Callable[[], Any]) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(self._guarded, work)

    async def _guarded(self, work: Callable[[], Any]) -> None:
        try:
            await work()
        except Exception:
            # An error in one episode must not end the task group, because that would stop the gateway.
            logger.exception("clearing up after an episode failed")

    async def _reap_forever(self) -> None:
        lifetimes = [self.limits.seconds(spec) for spec in self.environments.values()]
        shortest = min([self.limits.idle_seconds, *(seconds for seconds in lifetimes if seconds is not None)])
        period = max(0.01, min(5.0, shortest / 20))
        while True:
            await self._clock.sleep(period)
            self._reap()

    def _reap(self) -> None:
        """Expire idle episodes, and forget ended ones that nobody has used for twice the idle limit."""
        now = self._clock.monotonic()
        for episode in list(self._episodes.values()):
            if episode.check_time():
                self._spawn(episode.release)
            idle = now - episode.last_used
            if idle < self.limits.idle_seconds or episode.busy:
                continue
            if not episode.live:
                if idle >= 2 * self.limits.idle_seconds:
                    self._forget_soon(episode.handle)
                continue
            if episode.status == "opening":
                continue
            minutes = self.limits.idle_seconds / 60
            episode.end(
                "expired",
                "expired",
                f"It expired after {minutes:g} minutes without a call.",
                infrastructure=True,
            )
            self._spawn(episode.release)


def _random_handle(environment: str, principal: str) -> str:
    return f"ep_{secrets.token_urlsafe(24)}"
