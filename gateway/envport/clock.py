"""Clocks: the system clock, and one that tests advance by hand."""

from __future__ import annotations

import heapq
import itertools
import time
from typing import Protocol

import anyio

__all__ = ["Clock", "ManualClock", "SystemClock"]

_LOOK_SECONDS = 0.03


class Clock(Protocol):
    """The interface through which the gateway reads the time and waits."""

    def monotonic(self) -> float:
        """Seconds since some start; never goes backwards."""
        ...

    def time(self) -> float:
        """Unix time in seconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        """Seconds since some start; never goes backwards."""
        return time.monotonic()

    def time(self) -> float:
        """Unix time in seconds."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        await anyio.sleep(seconds)


class ManualClock:
    """A clock that stands still until `advance` is called.

    Args:
        now: Unix time at which it starts.
    """

    def __init__(self, now: float = 1_700_000_000.0):
        self._start = now
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, anyio.Event]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        """Seconds advanced so far."""
        return self._elapsed

    def time(self) -> float:
        """The start plus the seconds advanced so far."""
        return self._start + self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced by this many seconds."""
        event = anyio.Event()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), event))
        await event.wait()

    async def advance(self, seconds: float) -> None:
        """Advance the clock. Each sleeper wakes at its time, and runs until it blocks before the next one wakes."""
        await _all_blocked()
        end = self._elapsed + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            self._elapsed, _, event = heapq.heappop(self._sleepers)
            event.set()
            await _all_blocked()
        self._elapsed = end
        await _all_blocked()


async def _all_blocked() -> None:
    """Wait until every other task waits for something."""
    blocked = False
    while not blocked:
        # anyio checks every 0.1 s, and a server in the same loop wakes every 0.1 s too. If both coincide, anyio never
        # finds the server blocked. So start the check again after a shorter time.
        with anyio.move_on_after(_LOOK_SECONDS):
            await anyio.wait_all_tasks_blocked()
            blocked = True
