"""Time limits that can be paused: an agent does not pay for the seconds in which its model is writing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio

__all__ = ["Deadline"]

# A paused limit that is nearly used up is looked at again after this time.
_SHORTEST_WAIT = 0.05


class Deadline:
    """A time limit that begins now. It can be paused from any thread.

    Args:
        seconds: The limit.
        clock: Tells the time in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic):
        self.seconds = seconds
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._pauses = 0
        self._paused_at = 0.0
        self._paused_for = 0.0

    @contextmanager
    def paused(self) -> Generator[None]:
        """Let the time stand still. Pauses may overlap."""
        with self._lock:
            if self._pauses == 0:
                self._paused_at = self._clock()
            self._pauses += 1
        try:
            yield
        finally:
            with self._lock:
                self._pauses -= 1
                if self._pauses == 0:
                    self._paused_for += self._clock() - self._paused_at

    def spent(self) -> float:
        """Seconds that have passed outside of pauses."""
        with self._lock:
            now = self._paused_at if self._pauses else self._clock()
            return now - self._began - self._paused_for

    def left(self) -> float:
        """Seconds that are left; 0 when the limit is used up."""
        return max(0.0, self.seconds - self.spent())

    async def used_up(self) -> None:
        """Wait until the limit is used up."""
        # No event tells that time has passed.
        while left := self.left():  # noqa: ASYNC110
            await anyio.sleep(max(left, _SHORTEST_WAIT))
