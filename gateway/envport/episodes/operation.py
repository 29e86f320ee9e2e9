"""Timing, result and trace span of one episode operation: open, reset or call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Token
from types import TracebackType
from typing import Self

from envport.clock import Clock
from envport.episodes.play import CallResult
from envport.errors import AtCapacity, EnvportError, ToolError
from envport.telemetry.subject import EpisodeSubject, episode_at_hand
from envport.telemetry.tracing import OpenSpan, begin_span

__all__ = ["Operation"]

_OK = "ok"


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
