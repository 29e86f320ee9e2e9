"""Data of one play of an episode: its request, the results of its calls, and its counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Literal

from envport.errors import EnvportError
from envport.types import Observation, Outcome, Task

__all__ = ["CallResult", "EpisodeRequest", "LastAnswer", "Tally"]

_KEPT_REWARDS = 10_000


@dataclass(frozen=True, slots=True)
class EpisodeRequest:
    """The task, seed and options that an episode was opened with.

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
    """The result of a tool call.

    Attributes:
        observation: What the player sees.
        step: How many calls have reached the environment, including this one.
        is_error: Whether the environment answered with a `ToolError`.
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
    """Counts of one play. A reset starts new ones.

    Attributes:
        steps: Tool calls that reached the environment.
        errors: Tool calls that were refused, or that the environment answered with a `ToolError`.
        records: Tool calls that were recorded.
        reward_sum: Sum of the rewards.
        last_reward: The last reward; `None` if there was none.
        environment_seconds: Time spent inside the environment.
        rewards: The rewards of the latest steps, one for each step.
    """

    steps: int = 0
    errors: int = 0
    records: int = 0
    reward_sum: float = 0.0
    last_reward: float | None = None
    environment_seconds: float = 0.0
    rewards: deque[float | None] = field(default_factory=lambda: deque(maxlen=_KEPT_REWARDS))

    def add(self, reward: float | None, seconds: float) -> None:
        """Count a step."""
        self.steps += 1
        self.environment_seconds += seconds
        self.rewards.append(reward)
        if reward is not None:
            self.reward_sum += reward
            self.last_reward = reward

    def reward(self, how: Literal["sum", "last"]) -> float | None:
        """The reward so far; `None` if no step had one."""
        return self.reward_sum if how == "sum" and self.last_reward is not None else self.last_reward


class LastAnswer:
    """The answer to the latest call that had an id, for a client that missed it."""

    def __init__(self) -> None:
        self._call_id: str | None = None
        self._answer: CallResult | EnvportError | None = None

    def is_of(self, call_id: str) -> bool:
        """Whether it is the answer to the call with this id."""
        return call_id == self._call_id

    def given(self) -> CallResult:
        """Return the answer again.

        Raises:
            EnvportError: The answer was an error.
        """
        if isinstance(self._answer, EnvportError):
            raise self._answer.with_traceback(None)
        assert self._answer is not None
        return self._answer

    async def keep(self, call_id: str, play: Awaitable[CallResult]) -> CallResult:
        """Await a call, and keep its result or its error."""
        try:
            answer = await play
        except EnvportError as error:
            self._call_id, self._answer = call_id, error
            raise
        self._call_id, self._answer = call_id, answer
        return answer
