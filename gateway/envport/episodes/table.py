"""The table of episodes: opens them within limits, finds them by handle, and ends those that idle."""

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

# For all episodes together, when the gateway is shut down.
_RELEASE_SECONDS = 10.0


class Episodes:
    """Every episode of a gateway.

    Args:
        environments: What can be played.
        limits: Limits on episodes.
        clock: The time.
        trajectories: Where calls are recorded.
        runtime: How environments are run; each as it declares, if not given.
        new_handle: Makes the handle of an episode, of the environment's name and the principal.
        observer: Told how episodes end. Of what is asked of them, see `WatchedTable`.

    Raises:
        ConfigurationError: A limit is set for an environment that is not there.
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
        # Ended episodes by handle, in the order of their end.
        self._ended: dict[str, None] = {}
        self._pending: set[asyncio.Task[None]] = set()
        # Those that hold a place of the admission's.
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
        """Whether new episodes are no longer taken."""
        return self._admission.closed

    @property
    def waiting(self) -> int:
        """How many requests wait for room."""
        return self._admission.waiting

    @property
    def runtimes(self) -> Mapping[RuntimeKind, Runtime]:
        """What runs the environments, by its name."""
        return self._runtimes

    def census(self) -> Counter[tuple[str, Status]]:
        """How many live episodes of each environment are in each status."""
        return Counter((episode.spec.name, episode.status) for episode in self._episodes.values() if episode.live)

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Run the reaper; on the way out, close every episode."""
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
        """The environment of that name.

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
            principal: Who the episode belongs to.
            split: The split to take the task from; the first one if not given.
            task: Index of the task in the split, or a task of the caller's own. If the environment has tasks and
                none is chosen, the seed chooses.
            seed: The seed; a random one is drawn if not given.
            reward_in_meta: Whether MCP results carry the reward in `_meta`.
            wait: Whether to wait for room.

        Raises:
            UnknownEnvironment: The environment is not served.
            UnknownTask: It has no such split or task.
            InvalidRequest: The seed or the task is malformed.
            AtCapacity: There was no room, or none in time.
            Draining: New episodes are no longer taken.
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
            # The caller went away while the environment was being made.
            self.close_soon(episode)
            raise
        return episode

    def find(self, handle: str, principal: str) -> Episode:
        """The episode of that handle, for playing it.

        Raises:
            UnknownEpisode: It never was, has expired, was closed, or belongs to somebody else.
        """
        episode = self._episodes.get(handle)
        if episode is None or episode.principal != principal or episode.status in GONE:
            raise UnknownEpisode
        return episode

    def look_up(self, handle: str, principal: str) -> Episode:
        """The episode of that handle, for looking at it: closed and expired ones too, while they are remembered.

        Raises:
            UnknownEpisode: It never was, is forgotten, or belongs to somebody else.
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
        """Start an episode over: with the same task and seed, unless others are given.

        Raises:
            UnknownEpisode: It was closed or has expired.
            UnknownTask: There is no such split or task.
            AtCapacity: It had ended, and there is no room for another live one.
            Draining: It had ended, and new episodes are no longer taken.
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
                # It was closed in between, or the caller went away: the place goes to others.
                self._spawn(episode.release)

    def close_soon(self, episode: Episode) -> None:
        """Close an episode now, and free its environment as soon as no call is running in it."""
        episode.end("closed", "closed", "It was closed by its owner.")
        self._spawn(episode.release)

    def take_no_more(self) -> None:
        """Refuse new episodes from now on, also those for which a request waits; the others are played on."""
        self._admission.close()

    async def drain(self, seconds: float) -> None:
        """Refuse new episodes, wait until the others have ended, and end those that have not after so long."""
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
            # At once: each may wait for its environment.
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
        # What failed is logged with its cause.
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
        """Start work from where a task group cannot: outside any task, or before the table runs."""
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    def _retired(self, episode: Episode) -> None:
        """Give the place of an ended episode to others."""
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
            # One episode's trouble must not end the task group, and with it the gateway.
            logger.exception("clearing up after an episode failed")

    async def _reap_forever(self) -> None:
        lifetimes = [self.limits.seconds(spec) for spec in self.environments.values()]
        shortest = min([self.limits.idle_seconds, *(seconds for seconds in lifetimes if seconds is not None)])
        period = max(0.01, min(5.0, shortest / 20))
        while True:
            await self._clock.sleep(period)
            self._reap()

    def _reap(self) -> None:
        """Expire the episodes that idle, and forget those that have been over for as long again."""
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
