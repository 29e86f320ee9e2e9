"""The interface through which episodes report events, such as to the metrics."""

from __future__ import annotations

from typing import Protocol

from envport.types import Outcome

__all__ = ["EpisodeObserver", "Unobserved"]


class EpisodeObserver(Protocol):
    """Receives events about episodes. Its methods run in the event loop and return at once.

    A `result` is one of:

    - `ok`
    - the `code` of the error that the caller got (see `envport.errors`)
    - `cancelled`, if the caller disconnected
    - `internal`, for any other exception
    """

    def opened(self, environment: str, result: str, seconds: float) -> None:
        """An episode was opened, or could not be opened. `seconds` is how long the caller waited."""
        ...

    def reset(self, environment: str, result: str, seconds: float) -> None:
        """An episode was reset, or could not be reset."""
        ...

    def called(self, environment: str, result: str, seconds: float) -> None:
        """A tool was called. `seconds` is the time from the call to its answer, including the wait for its turn."""
        ...

    def ended(self, environment: str, outcome: Outcome) -> None:
        """An episode got an outcome. An episode that is reset and played again gets another one."""
        ...

    def refused(self, limit: str) -> None:
        """There was no room for an episode.

        Args:
            limit: The limit that was reached (see `AtCapacity`), or the code of a subclass such as `Draining`.
        """
        ...


class Unobserved:
    """An observer that ignores all events."""

    def opened(self, environment: str, result: str, seconds: float) -> None:
        """Do nothing."""

    def reset(self, environment: str, result: str, seconds: float) -> None:
        """Do nothing."""

    def called(self, environment: str, result: str, seconds: float) -> None:
        """Do nothing."""

    def ended(self, environment: str, outcome: Outcome) -> None:
        """Do nothing."""

    def refused(self, limit: str) -> None:
        """Do nothing."""
