"""Watching the operations on episodes: metrics, traces, and the episode's name in log lines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from contextvars import Token
from types import TracebackType
from typing import Any, Protocol, Self

from envport.clock import Clock, SystemClock
from envport.definition import EnvironmentDefinition
from envport.episodes.base import EpisodeTable, Found, Opening
from envport.episodes.limits import Limits
from envport.episodes.play import CallResult
from envport.episodes.readiness import Preparation
from envport.episodes.requests import OpenRequest
from envport.errors import AtCapacity, EnvportError, ToolError
from envport.runtimes import ProgressSink
from envport.telemetry.subject import EpisodeSubject, episode_at_hand
from envport.telemetry.tracing import OpenSpan, begin_span
from envport.types import Choice, EpisodeInfo, LegalCall, Outcome, Trajectory

__all__ = ["EpisodeObserver", "Unobserved", "WatchedTable"]

_OK = "ok"


class EpisodeObserver(Protocol):
    """Receives events about episodes. Its methods run in the event loop and return at once.

    A `result` is one of:

    - `ok`
    - the `code` of the error that the caller got (see `envport.errors`)
    - `cancelled`, if the caller disconnected
    - `internal`, for any other exception
    """

    def opened(self, environment: str, result: str, seconds: float) -> None:
        """An episode was opened, or could not be opened. `seconds` is how long the caller waited."""
        ...

    def reset(self, environment: str, result: str, seconds: float) -> None:
        """An episode was reset, or could not be reset."""
        ...

    def called(self, environment: str, result: str, seconds: float) -> None:
        """A tool was called. `seconds` is the time from the call to its answer, including the wait for its turn."""
        ...

    def ended(self, environment: str, outcome: Outcome) -> None:
        """An episode got an outcome. An episode that is reset and played again gets another one."""
        ...

    def refused(self, limit: str) -> None:
        """There was no room for an episode.

        Args:
            limit: The limit that was reached (see `AtCapacity`), or the code of a subclass such as `Draining`.
        """
        ...


class Unobserved:
    """An observer that ignores all events."""

    def opened(self, environment: str, result: str, seconds: float) -> None:
        """Do nothing."""

    def reset(self, environment: str, result: str, seconds: float) -> None:
        """Do nothing."""

    def called(self, environment: str, result: str, seconds: float) -> None:
        """Do nothing."""

    def ended(self, environment: str, outcome: Outcome) -> None:
        """Do nothing."""

    def refused(self, limit: str) -> None:
        """Do nothing."""


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

    async def open(self, request: OpenRequest) -> Opening:
        """Open an episode and reset its environment."""
        # An unknown name raises here, so that it never becomes a metrics label.
        name = self._table.environment(request.environment).name
        with self._operation("episode.open", name, None, self._observer.opened) as operation:
            opening = await self._table.open(request)
            operation.gave_episode(opening.handle, opening.seed)
            return opening

    def opens_at_once(self, environment: str, principal: str) -> bool:
        """Whether an episode would be opened now, or refused, without waiting for anything."""
        return self._table.opens_at_once(environment, principal)

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
        subject = EpisodeSubject(found.spec.name, found.handle, found.principal, found.labels)
        with self._operation("episode.call", subject.environment, subject, self._observer.called, tool) as operation:
            result = await self._table.call(found, tool, arguments, progress, call_id)
            operation.gave(result)
            return result

    def at_once(self, found: Found) -> bool:
        """Whether a call would be answered now without waiting for anything."""
        return self._table.at_once(found)

    async def legal_calls(self, found: Found) -> list[LegalCall] | None:
        """The calls that make sense now; `None` if the environment does not say."""
        return await self._table.legal_calls(found)

    async def info(self, handle: str, principal: str) -> EpisodeInfo:
        """The state of an episode."""
        return await self._table.info(handle, principal)

    async def list_episodes(self, principal: str, labels: Mapping[str, str], limit: int) -> list[EpisodeInfo]:
        """The principal's episodes that have these labels, the newest first."""
        return await self._table.list_episodes(principal, labels, limit)

    async def keep_alive(self, found: Found) -> EpisodeInfo:
        """Restart the idle timer of an episode."""
        return await self._table.keep_alive(found)

    async def reset(self, found: Found, choice: Choice) -> Opening:
        """Start an episode over. It keeps its task and seed unless others are given."""
        subject = EpisodeSubject(found.spec.name, found.handle, found.principal, found.labels)
        with self._operation("episode.reset", subject.environment, subject, self._observer.reset) as operation:
            opening = await self._table.reset(found, choice)
            operation.gave_episode(opening.handle, opening.seed)
            return opening

    async def close(self, handle: str, principal: str) -> EpisodeInfo:
        """Close an episode now. Its environment is freed as soon as no call is running in it."""
        return await self._table.close(handle, principal)

    async def fork(
        self, handle: str, principal: str, step: int | None = None, labels: Mapping[str, str] | None = None
    ) -> Opening:
        """Open a copy of an episode, which goes on by itself."""
        begin = self._clock.monotonic()
        opening = await self._table.fork(handle, principal, step, labels)
        self._observer.opened(opening.spec.name, _OK, self._clock.monotonic() - begin)
        return opening

    async def finish(self, handle: str, principal: str) -> EpisodeInfo:
        """End an episode, because its player has stopped, and wait until its reward is known."""
        return await self._table.finish(handle, principal)

    async def trajectory(self, handle: str, principal: str) -> Trajectory:
        """The trajectory of an episode."""
        return await self._table.trajectory(handle, principal)

    def _operation(
        self,
        name: str,
        environment: str,
        subject: EpisodeSubject | None,
        tell: Callable[[str, str, float], None],
        tool: str | None = None,
    ) -> Operation:
        return Operation(name, environment, subject, tool, self._clock, tell, self._observer.refused)


class Operation:
    """Context manager around one operation on an episode.

    Args:
        name: Name of the operation and of its span.
        environment: Name of the environment.
        subject: The episode, if it exists already.
        tool: Name of the tool, if the operation is a call.
        clock: The clock.
        tell: Called at the end with the environment's name, the result and the seconds; see `EpisodeObserver`.
        refused: Called with the limit that was reached, if there was no room.
    """

    __slots__ = ("_begin", "_clock", "_environment", "_refused", "_result", "_span", "_subject", "_tell", "_token")

    def __init__(
        self,
        name: str,
        environment: str,
        subject: EpisodeSubject | None,
        tool: str | None,
        clock: Clock,
        tell: Callable[[str, str, float], None],
        refused: Callable[[str], None],
    ):
        self._environment = environment
        self._subject = subject
        self._clock = clock
        self._tell = tell
        self._refused = refused
        self._result = _OK
        self._span: OpenSpan | None = begin_span(name, environment, subject.episode_id if subject else None, tool)

    def __enter__(self) -> Self:
        self._token: Token[EpisodeSubject | None] = episode_at_hand.set(self._subject)
        self._begin = self._clock.monotonic()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc is not None:
            self._result = _result_of(exc)
            if isinstance(exc, AtCapacity):
                self._refused(exc.limit if type(exc) is AtCapacity else exc.code)
        if self._span is not None:
            self._span.end(self._result if self._result != _OK else None)
        episode_at_hand.reset(self._token)
        self._tell(self._environment, self._result, self._clock.monotonic() - self._begin)

    def gave_episode(self, handle: str, seed: int) -> None:
        """Record the episode that was opened or reset."""
        if self._span is not None:
            self._span.set({"envport.episode.id": handle, "envport.seed": seed})

    def gave(self, result: CallResult) -> None:
        """Record the result of a call."""
        if result.is_error:
            self._result = ToolError.code
        if self._span is not None:
            self._span.set(
                {"envport.step": result.step, "envport.outcome": result.outcome.reason if result.outcome else None}
            )


def _result_of(error: BaseException) -> str:
    if isinstance(error, EnvportError):
        return error.code
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "internal"
