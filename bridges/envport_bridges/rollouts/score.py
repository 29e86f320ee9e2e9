"""What an episode came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from envport.errors import EpisodeFailed, EpisodeOver
from envport.types import EpisodeInfo, Outcome

__all__ = ["RolloutScore", "lost_to"]

_LOST_TO_ENVIRONMENT = Outcome(
    status="failed",
    reason="environment_error",
    message="The environment failed. This is a fault of the environment, not of the player.",
    fault="environment",
)
_LOST_TO_INFRASTRUCTURE = Outcome(
    status="failed",
    reason="worker_lost",
    message="The episode was lost. This is a fault of the infrastructure, not of the player.",
    fault="infrastructure",
)


_FAILED = Outcome(
    status="failed",
    reason="worker_lost",
    message="The code that it ran for its player was the cause, so this counts as a failure of the player.",
    fault="player",
)


def lost_to(error: BaseException) -> Outcome:
    """The outcome of an episode that an error cut short, as far as its player knows.

    Args:
        error: The gateway's `EpisodeFailed` or `EpisodeOver`, which name the owner of the fault. Any other error comes
            from the way to the gateway, or from the bridge.
    """
    owner = error.fault if isinstance(error, EpisodeFailed | EpisodeOver) else None
    if owner == "player":
        return _FAILED
    return _LOST_TO_ENVIRONMENT if owner == "environment" else _LOST_TO_INFRASTRUCTURE


@dataclass
class RolloutScore:
    """The rewards of an episode and its end.

    Attributes:
        rewards: The reward of each step, `None` where it had none.
        outcome: How it ended; `None` while it runs.
        steps: Calls that reached the environment.
        finished: Whether the reward is complete: the final state was scored, or is not going to be.
    """

    rewards: list[float | None] = field(default_factory=list[float | None])
    outcome: Outcome | None = None
    steps: int = 0
    finished: bool = False

    def count(self, reward: float | None, outcome: Outcome | None) -> None:
        """Count a step.

        Args:
            reward: Its reward.
            outcome: How it ended the episode, if it did.
        """
        self.steps += 1
        self.rewards.append(reward)
        self.outcome = outcome or self.outcome

    def finish(self, info: EpisodeInfo) -> None:
        """Take over what the gateway says about the end: the score is the last reward."""
        self.outcome = info.outcome or self.outcome
        if info.score is not None:
            self.rewards.append(info.score)
        self.finished = True

    @property
    def lost(self) -> bool:
        """Whether a fault that is not the player's cut it short, so that it says nothing about the player."""
        return self.outcome is not None and self.outcome.lost

    def total(self, how: Literal["sum", "last"]) -> float | None:
        """The episode's reward so far; `None` without any, and if it is lost.

        Args:
            how: The environment's own rule, `EnvironmentInfo.reward`.
        """
        given = [reward for reward in self.rewards if reward is not None]
        if self.lost or not given:
            return None
        return sum(given) if how == "sum" else given[-1]
