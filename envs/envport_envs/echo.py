"""Repeats its input, to test the protocol."""

from __future__ import annotations

from envport import Environment, Task, tool

__all__ = ["EchoEnvironment"]


class EchoEnvironment(Environment):
    """Says back what it is told. Made for trying out clients and for measuring."""

    deterministic = True

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Start an episode, which never ends by itself."""
        return "Say something."

    @tool(read_only=True, open_world=False)
    def echo(self, message: str) -> str:
        """Say the message back.

        Args:
            message: What to say back.
        """
        return message
