"""The interface between an episode and the runtime of its environment."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Protocol, cast

from pydantic_core import to_jsonable_python

from envport.definition import EnvironmentDefinition
from envport.environment import Progress
from envport.errors import ToolError, WorkerLost
from envport.tools.content import observe
from envport.tools.writable import why_unwritable
from envport.types import LegalCall, Observation, Step, Task

__all__ = [
    "NO_SECRETS",
    "UNBOUNDED",
    "Bounds",
    "Load",
    "ProgressSink",
    "Runtime",
    "StepResult",
    "Worker",
    "contained",
    "first_observation",
    "legal_calls_of",
    "reward_of",
]

ProgressSink = Progress
"""Receives the progress that a tool reports."""


class Bounds(NamedTuple):
    """Limits of a worker; `None` means no limit. The last three hold for a process with all that it starts.

    Attributes:
        call_seconds: How long a call may take.
        reset_seconds: How long making and resetting the environment may take.
        score_seconds: How long scoring it may take.
        close_seconds: How long closing it may take.
        memory_mb: MiB of memory, not counting what all workers of the environment share.
        cpu_seconds: Seconds of CPU time.
        max_processes: Processes and threads.
    """

    call_seconds: float | None = None
    reset_seconds: float | None = None
    score_seconds: float | None = None
    close_seconds: float | None = None
    memory_mb: float | None = None
    cpu_seconds: float | None = None
    max_processes: int | None = None


UNBOUNDED = Bounds()

NO_SECRETS: Mapping[str, str] = MappingProxyType({})
"""The secrets of an episode that has none."""


@dataclass(frozen=True, slots=True)
class Load:
    """The current load of a runtime.

    Attributes:
        workers: Workers that are open.
        busy: Workers in which a call is running.
    """

    workers: int
    busy: int


_NO_INFO: dict[str, Any] = {}


class StepResult(NamedTuple):
    """A `Step` with its observation in wire form and its reward checked.

    Attributes:
        observation: What the player sees.
        reward: Finite, or `None` where the step has no reward signal.
        terminated: The task came to its own end.
        truncated: The episode was cut off for a reason outside the task.
        info: Diagnostics, as plain data.
    """

    observation: Observation
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = _NO_INFO

    @classmethod
    def of(cls, value: Any) -> StepResult:
        """Make a result from a tool's return value: a `Step` or an observation.

        Raises:
            TypeError: The type of the observation or of the reward is not allowed, or the value is a tuple as
                Gymnasium's `step` returns it.
            ValueError: The reward is NaN or infinite.
        """
        if not isinstance(value, Step):
            _refuse_step_tuple(value)
            return cls(observe(value))
        step = cast("Step[Any]", value)
        return cls(
            observation=observe(step.observation),
            reward=reward_of(step.reward),
            terminated=bool(step.terminated),
            truncated=bool(step.truncated),
            info=to_jsonable_python(dict(step.info), fallback=repr) if step.info else _NO_INFO,
        )


def first_observation(value: Any) -> Observation:
    """Turn what `reset` returned into an observation.

    Raises:
        TypeError: The type of the observation is not allowed, or the value is a pair as Gymnasium's `reset` returns it.
    """
    if type(value) is tuple and len(cast("tuple[Any, ...]", value)) == 2 and isinstance(value[1], Mapping):
        raise TypeError(
            "reset() returned a pair like Gymnasium's (observation, info): return only the observation, as the player "
            "would see the info. If the mapping is part of the observation, return a list"
        )
    return observe(value)


def _refuse_step_tuple(value: Any) -> None:
    """Refuse the tuples of Gymnasium's `step`: taken as a list of observations, they show the reward to the player."""
    if type(value) is not tuple or len(parts := cast("tuple[Any, ...]", value)) not in (4, 5):
        return
    _, reward, *ends, info = parts
    if isinstance(info, Mapping) and hasattr(reward, "__float__") and all(map(_is_bool, ends)):
        names = "terminated, truncated" if len(ends) == 2 else "done"
        raise TypeError(
            f"the tool returned Gymnasium's tuple (observation, reward, {names}, info): return Step(observation, "
            "reward=..., terminated=..., truncated=..., info=...)"
        )


def _is_bool(value: Any) -> bool:
    # NumPy's class has had both names.
    return type(value).__name__ in ("bool", "bool_")


def reward_of(value: Any) -> float | None:
    """A reward that an environment gave, checked.

    Raises:
        TypeError: It is no number.
        ValueError: It is NaN or infinite.
    """
    if value is None:
        return None
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"a reward has to be a number or None, not {value!r}")
    reward = float(value)
    if not math.isfinite(reward):
        raise ValueError(f"a reward has to be finite, not {reward}")
    return reward


class _Contained:
    # It has no state, so one serves all calls.
    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            return
        if isinstance(error, ToolError):
            if error.content is not None:
                error.content = observe(error.content)
            return
        if isinstance(error, Exception):
            return
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            return
        raise RuntimeError(f"the environment raised {type(error).__qualname__}: {error}") from error


_CONTAINED = _Contained()


def contained() -> AbstractContextManager[None]:
    """Turn everything that an environment raises into an ordinary exception, so that it ends only its own episode.

    One exception passes unchanged: the cancellation of the current asyncio task, which belongs to the caller. The
    content of a `ToolError` becomes an observation.
    """
    return _CONTAINED


def legal_calls_of(value: Any) -> list[LegalCall] | None:
    """What `legal_calls` returned, as plain data.

    Raises:
        TypeError: It is not a sequence of pairs of a tool's name and arguments, or cannot be written as JSON.
    """
    if value is None:
        return None
    # An iterator could run the environment's code here, in the event loop, and without end.
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise TypeError(f"legal_calls() has to return a sequence of (tool, arguments) pairs, not {value!r}")
    calls: list[LegalCall] = []
    for item in cast("Sequence[Any]", value):
        if not (isinstance(item, tuple | list) and len(cast("Sequence[Any]", item)) == 2):
            raise TypeError(f"legal_calls() has to return (tool, arguments) pairs, not {item!r}")
        name, arguments = cast("Sequence[Any]", item)
        if type(name) is not str or not isinstance(arguments, Mapping):
            raise TypeError(f"legal_calls() has to return (tool, arguments) pairs, not {item!r}")
        calls.append((name, to_jsonable_python(dict(cast("Mapping[str, Any]", arguments)))))
    if (why := why_unwritable(calls)) is not None:
        raise TypeError(f"legal_calls() returned what cannot be shown: {why}")
    return calls


class Worker(Protocol):
    """One environment instance, in whichever runtime. Only one caller may use it at a time.

    After `WorkerLost` or a cancelled call, only `close` may be called.

    Attributes:
        at_once: Whether its calls wait for nothing, so that no cancellation can reach one that has begun.
    """

    at_once: bool

    async def reset(self, *, seed: int, task: Task | None, secrets: Mapping[str, str] = NO_SECRETS) -> Observation:
        """Start the episode and return the first observation.

        Raises:
            ToolError: The environment refused the task.
            AtCapacity: The foreign system behind the environment has no room now.
            UpstreamLost: The foreign system behind the environment has failed.
            WorkerLost: The process of the environment died, or the reset exceeded its time limit.
            Exception: The environment itself failed.
        """
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], progress: ProgressSink | None) -> StepResult:
        """Call a tool.

        Raises:
            InvalidArguments: The arguments break the tool's schema; the environment was not touched.
            ToolError: The environment refused the call, with a message for the player.
            UpstreamLost: The foreign system behind the environment has failed.
            WorkerLost: The process of the environment died, or the call exceeded its time or memory limit.
            Exception: The environment itself failed.
        """
        ...

    async def legal_calls(self) -> list[LegalCall] | None:
        """The calls that make sense now, if the environment says which.

        Raises:
            WorkerLost: The process of the environment died, or took longer than a call may.
            Exception: The environment itself failed.
        """
        ...

    async def score(self) -> float | None:
        """Score the final state.

        Raises:
            UpstreamLost: The foreign system behind the environment has failed.
            WorkerLost: The process of the environment died, or scoring exceeded its time limit.
            Exception: The environment itself failed, or the score is not a finite number.
        """
        ...

    async def final_state(self) -> Any:
        """The final state as plain data, for a scoring function outside the environment.

        Raises:
            Exception: The same as for `score`.
        """
        ...

    async def snapshot(self) -> bytes:
        """The state of the episode, from `snapshot`.

        Raises:
            WorkerLost: The process of the environment died, or took longer than a call may.
            Exception: The environment itself failed, or returned no bytes.
        """
        ...

    async def restore(self, snapshot: bytes) -> None:
        """Put a state back. To be called after `reset` with the same seed and task.

        Args:
            snapshot: What `snapshot` returned, also of another worker.

        Raises:
            WorkerLost: The process of the environment died, or took longer than a reset may.
            Exception: The environment itself failed.
        """
        ...

    async def close(self) -> None:
        """Release the instance and its process or thread."""
        ...


class Runtime(Protocol):
    """Makes workers."""

    async def prepare(self, spec: EnvironmentDefinition) -> None:
        """Prepare the environment, so that the first episode opens without delay.

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
        """Create a worker with a new instance of the environment.

        Args:
            spec: The environment.
            bounds: Limits of the worker.
            on_lost: Called in the event loop if the worker is lost while no call is running in it.
        """
        ...

    def opens_at_once(self, spec: EnvironmentDefinition) -> bool:
        """Whether a worker is made, and reset, without waiting for anything."""
        ...

    def load(self) -> Load:
        """The current load."""
        ...

    async def memory(self) -> int | None:
        """Bytes of memory of the workers' processes; `None` if the workers live in the gateway's own process.

        May take a while, but does not block the event loop.
        """
        ...

    async def forget(self, spec: EnvironmentDefinition) -> None:
        """Release what was set up for an environment that is not opened any more, and has no workers left."""
        ...

    async def drain(self) -> None:
        """Release the runtime's own resources; workers that are still open are lost."""
        ...
