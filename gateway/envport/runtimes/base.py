"""The seam between an episode and whatever runs its environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from pydantic_core import to_jsonable_python

from envport.content import observe
from envport.environment import Progress
from envport.registry import EnvironmentSpec
from envport.types import Observation, Step, Task

__all__ = ["ProgressSink", "Runtime", "StepResult", "Worker"]

ProgressSink = Progress
"""Where a tool's progress goes."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """A `Step` with its observation in wire form and its reward checked.

    Attributes:
        observation: What the player sees.
        reward: Finite, or `None` where the step has no reward signal.
        terminated: The task reached an end of its own.
        truncated: The episode was cut off from outside the task.
        info: Diagnostics, as plain data.
    """

    observation: Observation
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, value: Any) -> StepResult:
        """Make a result of what a tool returned: a `Step` or an observation.

        Raises:
            TypeError: The observation or the reward is of no allowed type.
            ValueError: The reward is NaN or infinite.
        """
        if not isinstance(value, Step):
            return cls(observe(value))
        step = cast("Step[Any]", value)
        return cls(
            observation=observe(step.observation),
            reward=_reward(step.reward),
            terminated=bool(step.terminated),
            truncated=bool(step.truncated),
            info=to_jsonable_python(dict(step.info), fallback=repr) if step.info else {},
        )


def _reward(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"a reward has to be a number or None, not {value!r}")
    reward = float(value)
    if not math.isfinite(reward):
        raise ValueError(f"a reward has to be finite, not {reward}")
    return reward


class Worker(Protocol):
    """One environment instance, wherever it runs. Used by one caller at a time."""

    async def reset(self, *, seed: int, task: Task | None) -> Observation:
        """Start the episode and return the first observation."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], progress: ProgressSink | None) -> StepResult:
        """Call a tool.

        Raises:
            InvalidArguments: The arguments break the tool's schema; the environment was not touched.
            ToolError: The environment refused, in words for the player.
            Exception: Anything else means that the environment broke.
        """
        ...

    async def close(self) -> None:
        """Release the instance."""
        ...


class Runtime(Protocol):
    """Makes workers."""

    async def open(self, spec: EnvironmentSpec) -> Worker:
        """Make a worker with a new instance of the environment."""
        ...

    async def drain(self) -> None:
        """Release what the runtime itself holds, once its workers are closed."""
        ...
