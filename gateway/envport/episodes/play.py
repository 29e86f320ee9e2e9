"""One play of an episode as data: what it is opened with, what its calls give, and what is counted."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from envport.types import Observation, Outcome, Task

__all__ = ["CallResult", "EpisodeRequest", "Tally"]

_KEPT_REWARDS = 10_000


@dataclass(frozen=True, slots=True)
class EpisodeRequest:
    """What an episode was opened with.

    Attributes:
        seed: The seed given to `reset`.
        split: The split of the task.
        task: The task.
        task_index: Index of the task in its split, if it was chosen by index.
        reward_in_meta: Whether MCP results carry the reward in `_meta`.
    """

    seed: int
    split: str | None = None
    task: Task | None = None
    task_index: int | None = None
    reward_in_meta: bool = False


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a tool call gave.

    Attributes:
        observation: What the player sees.
        step: How many calls have reached the environment, this one included.
        is_error: The environment answered with a `ToolError`.
        reward: Reward of the step.
        terminated: Whether the task ended with this call.
        truncated: Whether the episode was cut off with this call.
        outcome: How the episode ended, if this call ended it.
        reward_in_meta: Whether the player may be shown the reward.
    """

    observation: Observation
    step: int
    is_error: bool = False
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    outcome: Outcome | None = None
    reward_in_meta: bool = False


@dataclass(slots=True)
class Tally:
    """Counts of one play, begun anew by a reset.

    Attributes:
        steps: Tool calls that reached the environment.
        errors: Tool calls that were refused, or that the environment answered with a `ToolError`.
        records: Tool calls that were recorded.
        reward_sum: Sum of the rewards.
        last_reward: The last reward, `None` without any.
        environment_seconds: Time spent inside the environment.
        rewards: The reward of each step, the latest ones.
    """

    steps: int = 0
    errors: int = 0
    records: int = 0
    reward_sum: float = 0.0
    last_reward: float | None = None
    environment_seconds: float = 0.0
    rewards: deque[float | None] = field(default_factory=lambda: deque(maxlen=_KEPT_REWARDS))
