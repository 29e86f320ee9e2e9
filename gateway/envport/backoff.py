"""Waiting between attempts: pauses that double, within a time limit."""

from __future__ import annotations

import asyncio
import time

__all__ = ["Backoff"]


class Backoff:
    """The pauses between the attempts at one thing. The time counts from when this is made.

    Args:
        seconds: How long to go on trying.
        first: Seconds before the second attempt. Each further pause is twice as long.
        longest: Seconds of the longest pause.
    """

    def __init__(self, seconds: float, *, first: float = 0.1, longest: float = 5.0):
        self._deadline = time.monotonic() + seconds
        self._pause = first
        self._longest = longest

    async def wait(self, at_least: float = 0.0) -> bool:
        """Wait before the next attempt. Returns false, at once, if the time would be over by then.

        Args:
            at_least: Seconds that the other side asked to wait. No pause is longer than the longest.
        """
        pause = min(max(self._pause, at_least), self._longest)
        if time.monotonic() + pause > self._deadline:
            return False
        await asyncio.sleep(pause)
        self._pause *= 2
        return True
