"""Who may open an episode now, who waits, and who is refused."""

from __future__ import annotations

from collections import Counter, deque

import anyio

from envport.errors import AtCapacity

__all__ = ["Admission"]


class Admission:
    """Counts the episodes that hold resources, in all and by principal.

    A request past capacity waits its turn for a bounded time, in a queue of bounded length.

    Args:
        capacity: Episodes in all.
        per_principal: Episodes of one principal; `None` for no limit but `capacity`.
        max_waiting: How many requests may wait.
        wait_seconds: How long one waits before it is refused.
    """

    def __init__(self, capacity: int, per_principal: int | None, max_waiting: int, wait_seconds: float):
        self._capacity = capacity
        self._per_principal = per_principal
        self._max_waiting = max_waiting
        self._wait_seconds = wait_seconds
        self._held: Counter[str] = Counter()
        self._waiting: deque[tuple[str, anyio.Event]] = deque()

    @property
    def held(self) -> int:
        """How many places are taken."""
        return self._held.total()

    @property
    def waiting(self) -> int:
        """How many requests wait for a place."""
        return len(self._waiting)

    async def acquire(self, principal: str) -> None:
        """Take a place, waiting for it if need be.

        Raises:
            AtCapacity: None came free in time, or too many are waiting already.
        """
        # Whoever waits has no room, or would have been let in: nobody is overtaken.
        if self._room(principal):
            self._held[principal] += 1
            return
        if len(self._waiting) >= self._max_waiting or self._wait_seconds <= 0:
            raise self._refusal(principal)
        place = (principal, anyio.Event())
        self._waiting.append(place)
        try:
            with anyio.move_on_after(self._wait_seconds):
                await place[1].wait()
        except BaseException:
            # The caller went away; a place that came in the same moment goes to the next one.
            if place[1].is_set():
                self.release(principal)
            raise
        finally:
            if place in self._waiting:
                self._waiting.remove(place)
        if not place[1].is_set():
            raise self._refusal(principal)

    def release(self, principal: str) -> None:
        """Give a place back."""
        self._held[principal] -= 1
        if not self._held[principal]:
            del self._held[principal]
        self._wake()

    def _room(self, principal: str) -> bool:
        if self._per_principal is not None and self._held[principal] >= self._per_principal:
            return False
        return self.held < self._capacity

    def _wake(self) -> None:
        for place in list(self._waiting):
            principal, event = place
            if self._room(principal):
                self._held[principal] += 1
                self._waiting.remove(place)
                event.set()

    def _refusal(self, principal: str) -> AtCapacity:
        own = self._per_principal is not None and self._held[principal] >= self._per_principal
        limit = f"your {self._per_principal} episodes" if own else f"all {self._capacity} episodes"
        return AtCapacity(
            f"No room for another episode: {limit} are in use. Close one, or try again in a while.",
            retry_after=max(1.0, self._wait_seconds),
            limit="principal" if own else "total",
        )
