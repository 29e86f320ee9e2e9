"""What a check is doing at the moment, and how much time it has left."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

import anyio

from envport.checker.report import CheckReport

__all__ = ["CHECK_SECONDS", "CheckWatch", "OutOfTime"]

CHECK_SECONDS = 120.0
"""How long a check takes at most, if nothing else is said."""

# The event loop of a busy machine may be late.
_GRACE_SECONDS = 2.0
_GRACE_SHARE = 0.5
# A single step may take half of the time. What takes longer is taken for one that hangs.
_STEP_SHARE = 0.5
_SHORT = 100

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class _Step:
    """What a check is doing.

    Attributes:
        what: Name of the step.
        since: When it began, on the watch.
    """

    what: str
    since: float


class OutOfTime(Exception):
    """The time of the check is over.

    Args:
        limit: The time, in seconds.
        step: What was being done, or was to be done next.
        running: For how many seconds it had been done.
    """

    def __init__(self, limit: float, step: str, running: float):
        super().__init__(f"{step}: {limit:g} s are over")
        self.limit = limit
        self.step = step
        self.running = running


class CheckWatch:
    """Follows a check from a thread of its own, so that it can tell of a step that blocks all others.

    Args:
        seconds: How long the check may take; `None` for no limit.
        tell: Gets a line about what is being done, after `first` seconds and then after every `every` seconds.
        first: When it is told first.
        every: How often it is told.
        stuck: Called once, in the watch's thread, if the time is over and the step cannot be stopped.
        clock: Tells the seconds since some start; never goes backwards.

    Attributes:
        seconds: How long the check may take; `None` for no limit.
        stage: What the next steps belong to.
        report: What has been found up to now, once the environment is loaded.
    """

    def __init__(
        self,
        seconds: float | None = CHECK_SECONDS,
        tell: Callable[[str], None] | None = None,
        *,
        first: float = 3.0,
        every: float = 10.0,
        stuck: Callable[[OutOfTime], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.seconds = seconds
        self.stage = ""
        self.report: CheckReport | None = None
        self._tell = tell
        self._first = first
        self._every = every
        self._stuck = stuck
        self._clock = clock
        self._began = clock()
        self._step = _Step("starting", 0.0)
        self._over = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._follow, name="envport check", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._began

    @property
    def step_seconds(self) -> float | None:
        """Seconds that a single step may take; `None` for no limit."""
        return None if self.seconds is None else self.seconds * _STEP_SHARE

    @property
    def left(self) -> float | None:
        """Seconds that are left; `None` for no limit."""
        return None if self.seconds is None else max(0.0, self.seconds - self.elapsed)

    def in_loop(self) -> None:
        """Say that the check goes on in the event loop that is running."""
        self._loop = asyncio.get_running_loop()

    def name(self, what: str) -> None:
        """Name the next step, which is done even if the time is over."""
        self._step = _Step(what if len(what) <= _SHORT else f"{what[:_SHORT]}...", self.elapsed)

    def begin(self, what: str) -> None:
        """Name the next step.

        Raises:
            OutOfTime: The time is over.
        """
        if self.left == 0.0:
            raise OutOfTime(self.seconds or 0.0, what, 0.0)
        self.name(what)

    async def within(self, what: str, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Do a step, and leave it when the time is over.

        Raises:
            OutOfTime: The time is over.
        """
        self.begin(what)
        with anyio.move_on_after(self.left):
            return await work()
        raise self._out_of_time()

    def _out_of_time(self) -> OutOfTime:
        step = self._step
        return OutOfTime(self.seconds or 0.0, step.what, self.elapsed - step.since)

    def _follow(self) -> None:
        told, limit = self._first, self.seconds
        while True:
            due = [at for at in (told if self._tell is not None else None, limit) if at is not None]
            if self._over.wait(max(0.0, min(due) - self.elapsed) if due else None):
                return
            if self._tell is not None and self.elapsed >= told:
                self._tell(self._line())
                told += self._every
            if limit is not None and self.elapsed >= limit:
                limit = None
                if self._stuck is not None and self._is_blocked():
                    self._stuck(self._out_of_time())

    def _is_blocked(self) -> bool:
        """Whether nothing else can run: the step stands in an import, or in the event loop itself."""
        answered = threading.Event()
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(answered.set)
            except RuntimeError:
                return False
        until = self.elapsed + min(_GRACE_SECONDS, (self.seconds or 0.0) * _GRACE_SHARE)
        while self.elapsed < until:
            if answered.wait(0.05) or self._over.is_set():
                return False
        return True

    def _line(self) -> str:
        step = self._step
        stage = f"{self.stage}: " if self.stage else ""
        running = self.elapsed - step.since
        return f"{self.elapsed:.0f} s: {stage}{step.what}{f', for {running:.0f} s' if running >= 1 else ''}"
