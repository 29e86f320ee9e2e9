"""The table of the episodes that run on this machine."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from heapq import nlargest
from typing import Any

import anyio

from envport.clock import Clock, SystemClock
from envport.definition import EnvironmentDefinition, served
from envport.entropy import random_token
from envport.environment import RuntimeKind
from envport.episodes.admission import Admission
from envport.episodes.background import Background
from envport.episodes.base import Found, Opening
from envport.episodes.context import EpisodeContext
from envport.episodes.episode import Episode
from envport.episodes.forking import Branch, find_branch
from envport.episodes.lasting import LastingEpisode
from envport.episodes.limits import Limits
from envport.episodes.past import NotPutBack
from envport.episodes.play import CallResult
from envport.episodes.readiness import Preparation, Readiness
from envport.episodes.reaping import Reaper
from envport.episodes.requests import OpenRequest, reading, resolve, resolve_reset
from envport.episodes.resuming import ResumedEpisodes, being_resumed
from envport.episodes.states import GONE
from envport.episodes.versions import Versions
from envport.episodes.watched import EpisodeObserver, Unobserved
from envport.errors import ConfigurationError, EpisodeFailed, InvalidRequest, UnknownEpisode
from envport.runtimes import ProgressSink, Runtime, kind_for, limits_kept_by, runtime_for
from envport.telemetry.logs import ENDS
from envport.telemetry.subject import EpisodeSubject
from envport.trajectories import MemoryTrajectories, TrajectoryStore
from envport.types import Choice, EpisodeInfo, LegalCall, Outcome, Reason, Status, Trajectory

__all__ = ["Episodes"]

logger = logging.getLogger(__name__)
ends = logging.getLogger(ENDS)

# Why an episode ended that neither its task, nor its owner, nor a limit of its own has ended.
_UNASKED: frozenset[Reason] = frozenset({"expired", "shutdown"})

# At shutdown, for all episodes together.
_RELEASE_SECONDS = 10.0


class Episodes:
    """An `EpisodeTable` of episodes that run in this process or in its child processes.

    Opens episodes within limits, finds them by handle, and ends idle ones.

    Args:
        environments: The environments that are served, by name.
        limits: Limits on episodes.
        clock: The clock.
        trajectories: Where calls are recorded.
        runtime: The runtime for all environments. If not given, each runs in the runtime that it declares.
        new_handle: Makes the handle of an episode from the environment's name and the principal.
        observer: Notified when episodes end. For opens, resets and calls, see `WatchedTable`.

    Attributes:
        trajectories: Where calls are recorded.

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
        self._versions = Versions(environments)
        self._limits = limits or Limits()
        self._limits.require(environments)
        self.trajectories = trajectories or MemoryTrajectories()
        self._clock = clock or SystemClock()
        self._observer = observer or Unobserved()
        self._new_handle = new_handle or _random_handle
        self._admission = Admission.within(self._limits, environments.values())
        # An episode is in one of the two: it holds a place of the admission, or it has ended and freed its
        # environment. The ended ones are in the order in which they ended.
        self._holding: dict[str, LastingEpisode] = {}
        self._ended: dict[str, LastingEpisode] = {}
        self._kind: RuntimeKind | None = runtime
        self._runtimes: dict[RuntimeKind, Runtime] = {}
        self._background = Background()
        self._reaper = Reaper(
            self._clock, self._limits, self._live, self._ended.values, self._background.start, self._forget
        )
        self._readiness = Readiness(environments.values(), self._prepare, self._clock)
        self._context = EpisodeContext(
            self._clock, self._limits, self.trajectories, self._note_end, self._released, self._background.start
        )
        self._resumed = ResumedEpisodes(
            self._versions.current, self._context, self._admission, self._runtime, self._hold
        )

    @property
    def environments(self) -> Mapping[str, EnvironmentDefinition]:
        """The environments that are served, by name."""
        return self._versions.current

    @property
    def limits(self) -> Limits:
        """Limits on episodes."""
        return self._limits

    @property
    def replicated(self) -> bool:
        """Always false: no other gateway can reach these episodes."""
        return False

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
    def preparations(self) -> Mapping[str, Preparation]:
        """The preparation status of each environment, by name."""
        found = self._readiness.preparations
        return {**found, **{name: being_resumed(found[name], count) for name, count in self._resumed.waiting.items()}}

    @property
    def runtimes(self) -> Mapping[RuntimeKind, Runtime]:
        """The runtimes in use, by name."""
        return self._runtimes

    def census(self) -> Counter[tuple[str, Status]]:
        """How many live episodes of each environment are in each status."""
        return Counter((episode.spec.name, episode.status) for episode in self._live())

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Run the reaper, and close every episode at the end."""
        self._reaper.adapt(self.environments.values())
        async with self.trajectories.run():
            await self._resumed.take_over()
            self._background.start(self._reaper.run)
            resuming = self._background.start(self._resumed.run)
            preparing = self._background.start(self._readiness.run)
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    # Stop preparing first. Otherwise, environments could be prepared that nobody releases.
                    preparing.cancel()
                    resuming.cancel()
                    await asyncio.wait({preparing, resuming})
                    await self._shut_down()
                    await self._background.stop()

    def environment(self, name: str) -> EnvironmentDefinition:
        """The environment of that name."""
        return served(self.environments, name)

    async def prepare_to_replace(self, spec: EnvironmentDefinition) -> None:
        """Prepare an environment that is to take the place of the one of the same name.

        Raises:
            ConfigurationError: It cannot be run.
            UnknownEnvironment: None of that name is served.
        """
        self.environment(spec.name)
        try:
            await self._readiness.replace(spec)
        except ConfigurationError:
            await self._runtime(spec).forget(spec)
            raise

    def replace(self, spec: EnvironmentDefinition) -> None:
        """Serve an environment that is prepared in place of the one of the same name.

        Live episodes go on with the one before, which is released when the last of them has ended.
        """
        self._versions.replace(spec)
        self._admission.limit(spec.name, self._limits.episodes(spec))
        self._reaper.adapt(self.environments.values())
        self._release_replaced()

    async def open(self, request: OpenRequest) -> Opening:
        """Open an episode and reset its environment."""
        return _opening(await self.open_episode(request))

    async def open_episode(self, request: OpenRequest) -> Episode:
        """The same as `open`, for a caller in this process that plays the episode itself."""
        spec = self.environment(request.environment)
        request = request.checked(spec)
        self.trajectories.check()
        start = await reading(spec, partial(resolve, spec, request.choice))
        await self._admission.acquire(request.principal, spec.name, wait=request.wait)
        if not self._versions.is_current(spec):
            # It was replaced while this request waited.
            self._admission.release(request.principal, spec.name)
            return await self.open_episode(request)
        handle = self._new_handle(spec.name, request.principal)
        episode = LastingEpisode(handle, spec, request, start, self._runtime(spec), self._context)
        await self._begin(episode, episode.open)
        return episode

    async def fork(
        self, handle: str, principal: str, step: int | None = None, labels: Mapping[str, str] | None = None
    ) -> Opening:
        """Open a copy of an episode, which goes on by itself."""
        branch = await self._branch(handle, principal, step)
        spec, past = branch.spec, branch.past
        if not self._versions.is_current(spec):
            raise InvalidRequest("This environment has changed since the episode was opened: open a new episode.")
        request = branch.request(principal, labels).checked(spec)
        self.trajectories.check()
        await self._admission.acquire(principal, spec.name)
        copy = LastingEpisode(
            self._new_handle(spec.name, principal),
            spec,
            request,
            branch.start,
            self._runtime(spec),
            self._context,
            past,
        )
        try:
            await self._begin(copy, partial(copy.put_back, past))
        except NotPutBack as why:
            raise EpisodeFailed(f"The copy could not be made: {why}.", "environment", "environment_error") from None
        opening = _opening(copy)
        return opening._replace(observation=past.steps[-1].observation) if past.steps else opening

    async def _branch(self, handle: str, principal: str, step: int | None) -> Branch:
        await self._resumed.settled(handle)
        episode = self._holding.get(handle) or self._ended.get(handle)
        return await find_branch(episode, self.trajectories.archive, self.environments, handle, principal, step)

    async def _begin(self, episode: LastingEpisode, begin: Callable[[], Awaitable[None]]) -> None:
        """Begin an episode that has a place."""
        self._hold(episode)
        try:
            await begin()
        except (EpisodeFailed, NotPutBack):
            raise
        except BaseException:
            # For example, the caller disconnected while the environment was being created.
            episode.end_by_owner()
            self._background.start(episode.release)
            raise

    def _hold(self, episode: LastingEpisode) -> None:
        self._holding[episode.handle] = episode

    def opens_at_once(self, environment: str, principal: str) -> bool:
        """Whether an episode would be opened now, or refused, without waiting for anything."""
        spec = self.environments.get(environment)
        return spec is None or (
            self.trajectories.at_once
            and self._runtime(spec).opens_at_once(spec)
            and self._admission.at_once(principal, environment)
        )

    def find(self, handle: str, principal: str) -> Found:
        """Find an episode by its handle, to play it."""
        episode = self._playable(handle, principal)
        return Found(handle, principal, episode.spec, episode.subject.labels)

    def episode(self, handle: str, principal: str) -> Episode:
        """The episode of that handle. Includes closed and expired ones while they are remembered.

        Raises:
            UnknownEpisode: It never existed, is forgotten, or belongs to another principal.
        """
        episode = self._holding.get(handle) or self._ended.get(handle)
        if episode is None or episode.principal != principal:
            raise UnknownEpisode
        return episode

    async def opening(self, found: Found) -> Opening:
        """The prompt, first observation and seed of the episode."""
        return _opening(await self._settled(found))

    async def call(
        self,
        found: Found,
        tool: str,
        arguments: Mapping[str, Any],
        progress: ProgressSink | None = None,
        call_id: str | None = None,
    ) -> CallResult:
        """Call a tool. Calls of one episode run one after the other."""
        episode = self._playable(found.handle, found.principal)
        if found.handle in self._resumed:
            await self._resumed.settled(found.handle)
        return await episode.call(tool, arguments, progress, call_id)

    def at_once(self, found: Found) -> bool:
        """Whether a call would be answered now without waiting for anything."""
        episode = self._holding.get(found.handle) or self._ended.get(found.handle)
        return episode is not None and episode.at_once and found.handle not in self._resumed

    async def legal_calls(self, found: Found) -> list[LegalCall] | None:
        """The calls that make sense now; `None` if the environment does not say."""
        return await (await self._settled(found)).legal_calls()

    async def info(self, handle: str, principal: str) -> EpisodeInfo:
        """The state of an episode. Closed and expired episodes are found too, while they are remembered."""
        return self.episode(handle, principal).info()

    async def list_episodes(self, principal: str, labels: Mapping[str, str], limit: int) -> list[EpisodeInfo]:
        """The principal's episodes that have these labels, the newest first."""
        wanted = labels.items()
        found = [
            episode
            for episode in (*self._ended.values(), *self._holding.values())
            if episode.principal == principal and wanted <= episode.subject.labels.items()
        ]
        return [episode.info() for episode in nlargest(limit, found, key=lambda episode: episode.created_at)]

    async def keep_alive(self, found: Found) -> EpisodeInfo:
        """Restart the idle timer of an episode."""
        episode = await self._settled(found)
        episode.touch()
        return episode.info()

    async def reset(self, found: Found, choice: Choice) -> Opening:
        """Start an episode over. It keeps its task and seed unless others are given."""
        episode = await self._settled(found)
        if not self._versions.is_current(episode.spec):
            raise InvalidRequest("This environment has changed since the episode was opened: open a new episode.")
        start = await reading(episode.spec, partial(resolve_reset, episode.spec, episode.start, choice))
        try:
            await episode.reset(start, self._readmit)
            if episode.status in GONE:
                raise UnknownEpisode
        finally:
            if not episode.live:
                # It was closed in the meantime, or the caller disconnected: free its place.
                self._background.start(episode.release)
        return _opening(episode)

    async def close(self, handle: str, principal: str) -> EpisodeInfo:
        """Close an episode now. Its environment is freed as soon as no call is running in it."""
        episode = self.episode(handle, principal)
        episode.end_by_owner()
        # Read the state first: freeing the episode drops its task, which would then have to be read again.
        info = episode.info()
        if handle in self._holding:
            await episode.free()
        return info

    async def finish(self, handle: str, principal: str) -> EpisodeInfo:
        """End an episode, because its player has stopped, and wait until its reward is known."""
        episode = self.episode(handle, principal)
        await self._resumed.settled(handle)
        await episode.finish()
        return episode.info()

    async def trajectory(self, handle: str, principal: str) -> Trajectory:
        """The trajectory of an episode."""
        return await self.episode(handle, principal).trajectory()

    def take_no_more(self) -> None:
        """Refuse new episodes from now on, including waiting requests. Open episodes can still be played."""
        self._admission.close()

    async def drain(self, seconds: float) -> None:
        """Refuse new episodes, and wait until the open ones have ended. After `seconds`, end the rest."""
        self.take_no_more()
        with anyio.move_on_after(seconds):
            await self._admission.emptied()
        for episode in self._end_all():
            self._background.start(episode.release)

    async def _settled(self, found: Found) -> Episode:
        episode = self._playable(found.handle, found.principal)
        await self._resumed.settled(found.handle)
        return episode

    def _playable(self, handle: str, principal: str) -> Episode:
        episode = self.episode(handle, principal)
        if episode.forgotten:
            raise UnknownEpisode
        return episode

    def _live(self) -> Iterator[LastingEpisode]:
        return (episode for episode in self._holding.values() if episode.live)

    def _end_all(self) -> list[LastingEpisode]:
        live = [episode for episode in self._live() if not self._outlives(episode)]
        for episode in live:
            episode.end("closed", "shutdown", "The gateway was shut down.", fault="infrastructure")
        return live

    def _outlives(self, episode: LastingEpisode) -> bool:
        """Whether an episode goes on after a restart."""
        return episode.outlives or episode.handle in self._resumed

    async def _readmit(self, episode: Episode) -> None:
        """Take a place again for an ended episode that is reset."""
        handle, spec = episode.handle, episode.spec
        if handle in self._holding or episode.status in GONE:
            return
        await self._admission.acquire(episode.principal, spec.name)
        gone = handle not in self._ended or episode.status in GONE
        if gone:
            # It was closed or forgotten in the meantime.
            self._admission.release(episode.principal, spec.name)
            raise UnknownEpisode
        self._holding[handle] = self._ended.pop(handle)

    async def _shut_down(self) -> None:
        self.take_no_more()
        self._end_all()
        if any(map(self._outlives, self._live())):
            self.trajectories.leave()
        with anyio.move_on_after(_RELEASE_SECONDS):
            # Concurrently, because each may have to wait for its environment.
            async with anyio.create_task_group() as tasks:
                for episode in list(self._holding.values()):
                    tasks.start_soon(episode.suspend if self._outlives(episode) else episode.release)
        for runtime in self._runtimes.values():
            await runtime.drain()

    def _runtime(self, spec: EnvironmentDefinition) -> Runtime:
        kind = kind_for(spec, self._kind)
        if kind not in self._runtimes:
            self._runtimes[kind] = runtime_for(kind)
        return self._runtimes[kind]

    async def _prepare(self, spec: EnvironmentDefinition) -> str | None:
        await self._runtime(spec).prepare(spec)
        return limits_kept_by(kind_for(spec, self._kind))

    def _note_end(self, subject: EpisodeSubject, outcome: Outcome) -> None:
        self._observer.ended(subject.environment, outcome)
        if (episode := self._holding.get(subject.episode_id)) is not None:
            self.trajectories.end(episode.handle, episode.state(), episode.snapshot)
        # Failures are logged elsewhere, with their cause.
        if outcome.status == "failed":
            return
        log = logger if outcome.reason in _UNASKED else ends
        if log.isEnabledFor(logging.INFO):
            log.info(
                "episode %s of environment %s ended as %s: %s",
                subject.episode_id,
                subject.environment,
                outcome.status,
                outcome.message,
                extra=subject.fields(outcome.reason),
            )

    def _released(self, subject: EpisodeSubject) -> None:
        """Free the place of an ended episode."""
        episode = self._holding.pop(subject.episode_id, None)
        if episode is None:
            return
        self._admission.release(subject.principal, subject.environment)
        self._ended[subject.episode_id] = episode
        while len(self._ended) > self._limits.max_ended:
            self._forget(next(iter(self._ended)))
        if self._versions.replaced:
            self._release_replaced()

    def _release_replaced(self) -> None:
        for spec in self._versions.unused(episode.spec for episode in self._holding.values()):
            self._background.start(partial(self._runtime(spec).forget, spec))

    def _forget(self, handle: str) -> None:
        del self._ended[handle]
        self._reaper.forgotten(handle)
        self.trajectories.forget(handle)


def _opening(episode: Episode) -> Opening:
    start, spec = episode.start, episode.spec
    # After its end, an episode keeps no more than the id of a task that can be read again.
    task = start.known(spec).task if spec.tools_vary else start.task
    return Opening(episode.handle, spec, episode.prompt, episode.first_observation, start.seed, start.tools, task)


def _random_handle(environment: str, principal: str) -> str:
    return f"ep_{random_token(24)}"
