"""What an episode came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from envport.types import Outcome

__all__ = ["LOST", "RolloutScore"]

LOST = Outcome(
    status="failed",
    reason="environment_error",
    message="The environment failed. This is a fault of the environment, not of the player.",
    infrastructure=True,
)
"""The outcome of an episode that was cut short by a fault, as far as its player knows."""


@dataclass
class RolloutScore:
    """The rewards of an episode and its end.

    Attributes:
        rewards: The reward of each step, `None` where it had none.
        outcome: How it ended; `None` while it runs.
    """

    rewards: list[float | None] = field(default_factory=list[float | None])
    outcome: Outcome | None = None

    @property
    def lost(self) -> bool:
        """Whether a fault cut it short, so that it says nothing about the player."""
        return self.outcome is not None and self.outcome.infrastructure

    def total(self, how: Literal["sum", "last"]) -> float | None:
        """The episode's reward so far; `None` without any, and after a fault.

        Args:
            how: The environment's own rule, `EnvironmentInfo.reward`.
        """
        given = [reward for reward in self.rewards if reward is not None]
        if self.lost or not given:
            return None
        return sum(given) if how == "sum" else given[-1]
