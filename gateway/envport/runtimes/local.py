"""Running environments in the gateway's own process: in its event loop, or in threads."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import anyio
import anyio.to_thread

from envport.content import observe
from envport.environment import Environment
from envport.registry import EnvironmentSpec
from envport.runtimes.base import ProgressSink, Runtime, StepResult, Worker
from envport.types import Observation, Task

__all__ = ["InlineRuntime", "ThreadRuntime", "runtime_for"]


class InlineRuntime:
    """Runs environments in the event loop: for those that are cheap and never block."""

    async def open(self, spec: EnvironmentSpec) -> Worker:
        """Make a worker with a new instance of the environment."""
        return _InlineWorker(spec, spec.make())

    async def drain(self) -> None:
        """Nothing is held."""


class ThreadRuntime:
    """Runs the sync methods of environments in threads, and the async ones in the event loop.

    Args:
        max_threads: How many calls may be in a thread at once.
    """

    def __init__(self, max_threads: int = 256):
        self._limiter = anyio.CapacityLimiter(max_threads)

    async def open(self, spec: EnvironmentSpec) -> Worker:
        """Make a worker with a new instance of the environment."""
        environment = await anyio.to_thread.run_sync(spec.make, limiter=self._limiter)
        return _ThreadWorker(spec, environment, self._limiter)

    async def drain(self) -> None:
        """Threads end by themselves."""


def runtime_for(kind: Literal["inline", "thread"]) -> Runtime:
    """The runtime of that name."""
    return InlineRuntime() if kind == "inline" else ThreadRuntime()


def _silent(progress: float, total: float | None = None, message: str | None = None) -> None:
    """Takes the progress that nobody asked for."""


class _InlineWorker:
    def __init__(self, spec: EnvironmentSpec, environment: Environment):
        self._tools = spec.tools
        self._environment = environment

    async def _run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    async def reset(self, *, seed: int, task: Task | None) -> Observation:
        self._environment.rng = random.Random(seed)
        return observe(await self._run(self._environment.reset, seed=seed, task=task))

    async def call(self, tool: str, arguments: Mapping[str, Any], progress: ProgressSink | None) -> StepResult:
        spec = self._tools[tool]
        bound = spec.bind(arguments)
        if spec.progress is not None:
            bound[spec.progress] = progress or _silent
        method = getattr(self._environment, spec.method)
        if spec.by_name:
            return StepResult.of(await self._run(method, spec.name, bound))
        return StepResult.of(await self._run(method, **bound))

    async def close(self) -> None:
        await self._run(self._environment.close)


class _ThreadWorker(_InlineWorker):
    def __init__(self, spec: EnvironmentSpec, environment: Environment, limiter: anyio.CapacityLimiter):
        super().__init__(spec, environment)
        self._limiter = limiter

    async def _run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        result = await anyio.to_thread.run_sync(partial(function, *args, **kwargs), limiter=self._limiter)
        return await result if inspect.isawaitable(result) else result
