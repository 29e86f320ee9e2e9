"""What an episode came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from envport.errors import EpisodeFailed, EpisodeOver, GatewayUnreachable
from envport.types import EpisodeInfo, FaultOwner, Outcome, Reason

__all__ = ["RolloutScore", "lost_to"]

_MESSAGES: dict[FaultOwner, str] = {
    "player": "The code that it ran for its player was the cause, so this counts as a failure of the player.",
    "environment": "The environment failed. This is a fault of the environment, not of the player.",
    "infrastructure": "The episode was lost. This is a fault of the infrastructure, not of the player.",
}


def lost_to(error: BaseException) -> Outcome:
    """The outcome of an episode that an error cut short, as far as its player knows.

    Args:
        error: The gateway's `EpisodeFailed` or `EpisodeOver`, which name the fault's owner and the reason. Any other
            error comes from the way to the gateway, or from the bridge.
    """
    owner: FaultOwner = "infrastructure"
    reason: Reason = "unreachable" if isinstance(error, GatewayUnreachable) else "worker_lost"
    if isinstance(error, EpisodeFailed | EpisodeOver):
        owner = error.fault or owner
        if error.reason in get_args(Reason):
            reason = cast("Reason", error.reason)
        elif owner == "environment":
            # A gateway that gives no reason.
            reason = "environment_error"
    return Outcome(status="failed", reason=reason, message=_MESSAGES[owner], fault=owner)


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
