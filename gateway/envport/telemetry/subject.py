"""The principal and episode that the current work is for, so that every log line can name them."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["NO_LABELS", "EpisodeSubject", "episode_at_hand", "principal_at_hand"]


NO_LABELS: Mapping[str, str] = MappingProxyType({})
"""The labels of an episode that has none."""


class EpisodeSubject(NamedTuple):
    """An episode as log lines and spans name it.

    Attributes:
        environment: Name of its environment.
        episode_id: Its handle.
        principal: Name of the principal that owns it.
        labels: Its labels, by name.
    """

    environment: str
    episode_id: str
    principal: str
    labels: Mapping[str, str] = NO_LABELS

    def fields(self, outcome: str | None = None, fault: str | None = None) -> dict[str, Any]:
        """The extra fields of a log line about the episode, for the `extra` argument of a logger.

        Args:
            outcome: The reason why the episode ended, if the line is about its end.
            fault: Who owns the fault that ended it, if there was one.
        """
        said = {**self._asdict(), "labels": self.labels or None, "outcome": outcome, "fault": fault}
        return {key: value for key, value in said.items() if value is not None}


principal_at_hand: ContextVar[str | None] = ContextVar("principal_at_hand", default=None)
"""Name of the principal that sent the current request."""

episode_at_hand: ContextVar[EpisodeSubject | None] = ContextVar("episode_at_hand", default=None)
"""The episode that is being opened, reset or played."""
