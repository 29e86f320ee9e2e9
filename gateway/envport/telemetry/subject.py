"""The principal and episode that the current work is for, so that every log line can name them."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple

__all__ = ["EpisodeSubject", "episode_at_hand", "principal_at_hand"]


class EpisodeSubject(NamedTuple):
    """An episode as log lines and spans name it.

    Attributes:
        environment: Name of its environment.
        episode_id: Its handle.
        principal: Name of the principal that owns it.
    """

    environment: str
    episode_id: str
    principal: str

    def fields(self, outcome: str | None = None, fault: str | None = None) -> dict[str, str]:
        """The extra fields of a log line about the episode, for the `extra` argument of a logger.

        Args:
            outcome: The reason why the episode ended, if the line is about its end.
            fault: Who owns the fault that ended it, if there was one.
        """
        said = {"outcome": outcome, "fault": fault}
        return self._asdict() | {key: value for key, value in said.items() if value is not None}


principal_at_hand: ContextVar[str | None] = ContextVar("principal_at_hand", default=None)
"""Name of the principal that sent the current request."""

episode_at_hand: ContextVar[EpisodeSubject | None] = ContextVar("episode_at_hand", default=None)
"""The episode that is being opened, reset or played."""
