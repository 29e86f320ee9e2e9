"""Counts its calls, to show that state is kept between calls."""

from __future__ import annotations

from envport import Environment, Task, tool

__all__ = ["CounterEnvironment"]


class CounterEnvironment(Environment):
    """Counts up from 1, one by one. An episode that is lost between two calls shows at once."""

    deterministic = True

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Start at zero."""
        self._count = 0
        return "The counter is at 0."

    def snapshot(self) -> bytes:
        """The count."""
        return str(self._count).encode()

    def restore(self, snapshot: bytes) -> None:
        """Count on from there."""
        self._count = int(snapshot)

    @tool(destructive=False, idempotent=False, open_world=False)
    def count(self) -> int:
        """Count one further and return the count."""
        self._count += 1
        return self._count
