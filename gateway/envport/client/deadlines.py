"""Limits on how long answers may take, with one timer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Deadlines"]

# The clock of uvloop counts milliseconds, and a timer may come half of one too early.
_TICK = 0.001


class Deadlines:
    """Tells when answers are overdue. Nearly all come in time, so each costs an entry in a dictionary, and no timer.

    Args:
        expire: Called with the number of a request whose time is over, and with the seconds that it had.
    """

    def __init__(self, expire: Callable[[int, float], None]):
        self._expire = expire
        # When a request is overdue by the loop's clock, and the seconds that it had.
        self._due: dict[int, tuple[float, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        # When the timer comes. The timers of uvloop do not always tell.
        self._at = 0.0

    def begin(self, number: int, seconds: float) -> None:
        """Begin the time of a request.

        Args:
            number: The request. No other one that waits has this number.
            seconds: How long it may take.
        """
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        self._due[number] = due, seconds
        if self._timer is None or due < self._at:
            self._wait(loop, due)

    def end(self, number: int) -> None:
        """End the time of a request."""
        self._due.pop(number, None)

    def stop(self) -> None:
        """Stop the timer: nothing expires any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self.stop()
        self._at = due
        self._timer = loop.call_at(due, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        over = loop.time() + _TICK
        for number, (due, seconds) in list(self._due.items()):
            if due <= over:
                del self._due[number]
                self._expire(number, seconds)
        if self._due:
            self._wait(loop, min(self._due.values())[0])
