"""The seam between episodes and whoever counts what happens to them."""

from __future__ import annotations

from typing import Protocol

from envport.types import Outcome

__all__ = ["EpisodeObserver", "Unobserved"]


class EpisodeObserver(Protocol):
    """Is told what happened to episodes, in the event loop, and returns at once.

    A result is `ok`, or the `code` of the error that the caller got (`envport.errors`), or `cancelled` where the caller
    went away, or `internal` for what nobody foresaw.
    """

    def opened(self, environment: str, result: str, seconds: float) -> None:
        """An episode was opened, or could not be; seconds are those that the caller waited."""
        ...

    def reset(self, environment: str, result: str, seconds: float) -> None:
        """An episode was started over, or could not be."""
        ...

    def called(self, environment: str, result: str, seconds: float) -> None:
        """A tool was called; seconds are from the call to its answer, the wait for its turn included."""
        ...

    def ended(self, environment: str, outcome: Outcome) -> None:
        """A play of an episode has an outcome; one that is reset and played again has another."""
        ...

    def refused(self, limit: str) -> None:
        """There was no room for an episode.

        Args:
            limit: The limit that was reached, see `AtCapacity`; or the code of another error for want of room.
        """
        ...


class Unobserved:
    """Takes note of nothing."""

    def opened(self, environment: str, result: str, seconds: float) -> None:
        """Nothing."""

    def reset(self, environment: str, result: str, seconds: float) -> None:
        """Nothing."""

    def called(self, environment: str, result: str, seconds: float) -> None:
        """Nothing."""

    def ended(self, environment: str, outcome: Outcome) -> None:
        """Nothing."""

    def refused(self, limit: str) -> None:
        """Nothing."""
