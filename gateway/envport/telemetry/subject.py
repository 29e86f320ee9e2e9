"""Whom and what the work at hand is for, so that every log line can say it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple

__all__ = ["EpisodeSubject", "episode_at_hand", "principal_at_hand"]


class EpisodeSubject(NamedTuple):
    """An episode as log lines and spans name it.

    Attributes:
        environment: Name of its environment.
        episode_id: Its handle.
        principal: Who it belongs to.
    """

    environment: str
    episode_id: str
    principal: str

    def fields(self, outcome: str | None = None) -> dict[str, str]:
        """What a log line about the episode says beside its message: the `extra` of a logger's call.

        Args:
            outcome: The reason of its end, if the line is about that.
        """
        fields = self._asdict()
        return fields if outcome is None else {**fields, "outcome": outcome}


principal_at_hand: ContextVar[str | None] = ContextVar("principal_at_hand", default=None)
"""Who the request that is being served was sent by."""

episode_at_hand: ContextVar[EpisodeSubject | None] = ContextVar("episode_at_hand", default=None)
"""The episode that is being opened, reset or played."""
