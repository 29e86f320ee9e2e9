"""The seam between an episode and whatever runs its environment."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from pydantic_core import to_jsonable_python

from envport.environment import Progress
from envport.errors import WorkerLost
from envport.registry import EnvironmentDefinition
from envport.tools.content import observe
from envport.types import Observation, Step, Task

__all__ = ["UNBOUNDED", "Bounds", "Load", "ProgressSink", "Runtime", "StepResult", "Worker", "contained"]

ProgressSink = Progress
"""Where a tool's progress goes."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a worker may take; `None` for no bound.

    Attributes:
        call_seconds: How long a call may take.
        reset_seconds: How long making and resetting the environment may take.
        close_seconds: How long closing it may take.
        memory_mb: MiB of memory beside what all workers of the environment share.
    """

    call_seconds: float | None = None
    reset_seconds: float | None = None
    close_seconds: float | None = None
    memory_mb: float | None = None


UNBOUNDED = Bounds()


@dataclass(frozen=True, slots=True)
class Load:
    """How much a runtime is running.

    Attributes:
        workers: Workers that are open.
        busy: Those in which a call is running.
    """

    workers: int
    busy: int


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


@contextmanager
def contained() -> Generator[None]:
    """Make an ordinary error of whatever an environment raises, so that it ends its episode and nothing else.

    Only the cancellation of the task that runs it passes: it is the caller's.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise RuntimeError(f"the environment raised {type(error).__qualname__}: {error}") from error


class Worker(Protocol):
    """One environment instance, wherever it runs. Used by one caller at a time.

    A worker that has raised `WorkerLost`, or one of whose calls was cancelled, is good for nothing but `close`.
    """

    async def reset(self, *, seed: int, task: Task | None) -> Observation:
        """Start the episode and return the first observation.

        Raises:
            ToolError: The environment refused the task.
            UpstreamLost: What the environment adapts has failed.
            WorkerLost: What ran the environment died, or took longer than it may.
            Exception: Anything else means that the environment broke.
        """
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], progress: ProgressSink | None) -> StepResult:
        """Call a tool.

        Raises:
            InvalidArguments: The arguments break the tool's schema; the environment was not touched.
            ToolError: The environment refused, in words for the player.
            UpstreamLost: What the environment adapts has failed.
            WorkerLost: What ran the environment died, or took longer or more than it may.
            Exception: Anything else means that the environment broke.
        """
        ...

    async def close(self) -> None:
        """Release the instance, and whatever ran it."""
        ...


class Runtime(Protocol):
    """Makes workers."""

    async def prepare(self, spec: EnvironmentDefinition) -> None:
        """Get ready to open the environment, so that the first episode need not wait.

        Raises:
            ConfigurationError: The environment cannot be run here.
        """
        ...

    async def open(
        self,
        spec: EnvironmentDefinition,
        bounds: Bounds = UNBOUNDED,
        on_lost: Callable[[WorkerLost], None] | None = None,
    ) -> Worker:
        """Make a worker with a new instance of the environment.

        Args:
            spec: The environment.
            bounds: What the worker may take.
            on_lost: Called in the event loop if the worker is lost while no call is running in it.
        """
        ...

    def load(self) -> Load:
        """How much is running."""
        ...

    async def memory(self) -> int | None:
        """Bytes of memory of what runs the workers; `None` where they live in the gateway's own process.

        May take a while, in which the event loop goes on.
        """
        ...

    async def drain(self) -> None:
        """Release what the runtime itself holds; workers that are not closed are lost."""
        ...
