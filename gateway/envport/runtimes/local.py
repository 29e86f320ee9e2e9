"""Running environments in the gateway's own process: in its event loop, or in threads."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from pydantic_core import to_jsonable_python

from envport.environment import Environment
from envport.errors import WorkerLost
from envport.registry import EnvironmentDefinition
from envport.runtimes.base import UNBOUNDED, Bounds, Load, ProgressSink, StepResult, Worker, contained, reward_of
from envport.runtimes.instance import Instance, Work
from envport.runtimes.own_task import OwnTask
from envport.runtimes.own_thread import OwnThread
from envport.runtimes.prepared import PreparedEnvironments
from envport.tools.content import observe
from envport.types import Observation, Task

__all__ = ["SCORING", "InlineRuntime", "ThreadRuntime", "overdue"]

logger = logging.getLogger(__name__)

SCORING = "Scoring the final state"
"""What is done, for messages."""

_BLOCKED_SECONDS = 0.5
# After its cancellation, time for a coroutine to clean up before its environment is closed.
_UNWIND_SECONDS = 0.2


def overdue(what: str, seconds: float | None) -> WorkerLost:
    """The error for an operation that exceeded its time limit."""
    return WorkerLost(f"{what} took longer than its limit of {seconds:g} s.", "deadline")


class _LocalRuntime:
    def __init__(self) -> None:
        self._open: set[_InlineWorker] = set()
        self._prepared = PreparedEnvironments()

    async def prepare(self, spec: EnvironmentDefinition) -> None:
        """Run the environment's own `prepare`."""
        await self._prepared.value(spec)

    async def _value(self, spec: EnvironmentDefinition, bounds: Bounds) -> Any:
        """What the environment has prepared for its episodes."""
        if spec.cls.prepare is Environment.prepare:
            return None
        try:
            async with asyncio.timeout(bounds.reset_seconds):
                return await self._prepared.value(spec)
        except TimeoutError:
            raise overdue("Preparing the environment", bounds.reset_seconds) from None

    def load(self) -> Load:
        """The current load."""
        return Load(len(self._open), sum(worker.busy for worker in self._open))

    async def memory(self) -> int | None:
        """`None`: the workers live in the gateway's own process."""
        return None

    async def drain(self) -> None:
        """End what the environments have prepared. Threads end by themselves."""
        await self._prepared.end()


class InlineRuntime(_LocalRuntime):
    """Runs environments in the event loop: for environments that are cheap and never block."""

    async def open(
        self,
        spec: EnvironmentDefinition,
        bounds: Bounds = UNBOUNDED,
        on_lost: Callable[[WorkerLost], None] | None = None,
    ) -> Worker:
        """Create a worker with a new instance of the environment."""
        prepared = await self._value(spec, bounds)
        with contained():
            return _InlineWorker(Instance(spec, prepared), bounds, self._open, _own_task(spec, on_lost))


class ThreadRuntime(_LocalRuntime):
    """Runs the sync methods of environments in threads, and the async ones in the event loop.

    An environment with `own_thread` has one thread for all of its sync methods.

    Args:
        max_threads: How many calls may run in threads at once.
    """

    def __init__(self, max_threads: int = 256):
        super().__init__()
        self._limiter = anyio.CapacityLimiter(max_threads)

    async def open(
        self,
        spec: EnvironmentDefinition,
        bounds: Bounds = UNBOUNDED,
        on_lost: Callable[[WorkerLost], None] | None = None,
    ) -> Worker:
        """Create a worker with a new instance of the environment."""
        prepared = await self._value(spec, bounds)
        async with self._limiter:
            with anyio.move_on_after(bounds.reset_seconds):
                threads = OwnThread(f"envport {spec.name}") if spec.cls.own_thread else _AnyThread()
                try:
                    with contained():
                        instance = await threads.run(partial(Instance, spec, prepared))
                except BaseException:
                    threads.end()
                    raise
                task = _own_task(spec, on_lost)
                return _ThreadWorker(instance, bounds, self._open, task, threads, self._limiter)
        raise overdue("Making the environment", bounds.reset_seconds)


def _own_task(spec: EnvironmentDefinition, on_lost: Callable[[WorkerLost], None] | None) -> OwnTask | None:
    return OwnTask(on_lost) if spec.is_async else None


class _AnyThread:
    """Runs work in any free thread."""

    def __init__(self) -> None:
        # One is enough: a worker has one call in a thread at a time. The shared limiter is acquired before the
        # call's time limit starts, so the wait for a free thread does not count.
        self._own = anyio.CapacityLimiter(1)

    async def run(self, work: Work) -> Any:
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._own)

    def end(self) -> None:
        """Do nothing: the thread is not ours."""


class _InlineWorker:
    def __init__(self, instance: Instance, bounds: Bounds, workers: set[_InlineWorker], own_task: OwnTask | None):
        self.busy = False
        self._own_task = own_task
        self._instance = instance
        self._bounds = bounds
        self._workers = workers
        workers.add(self)

    async def reset(self, *, seed: int, task: Task | None) -> Observation:
        work = self._instance.reset(seed=seed, task=task)
        with contained():
            return observe(await self._timed(work, "Resetting the environment", self._bounds.reset_seconds))

    async def call(self, tool: str, arguments: Mapping[str, Any], progress: ProgressSink | None) -> StepResult:
        work = self._instance.call(tool, arguments, progress)
        with contained():
            return StepResult.of(await self._timed(work, "The call", self._bounds.call_seconds))

    async def score(self) -> float | None:
        with contained():
            return reward_of(await self._timed(self._instance.score(), SCORING, self._bounds.score_seconds))

    async def final_state(self) -> Any:
        with contained():
            state = await self._timed(self._instance.final_state(), SCORING, self._bounds.score_seconds)
            return to_jsonable_python(state)

    async def close(self) -> None:
        self._workers.discard(self)
        try:
            with contained():
                await self._run(self._closing(), "Closing the environment", self._bounds.close_seconds)
        finally:
            if self._own_task is not None:
                self._own_task.end()

    def _closing(self) -> Work:
        return self._close

    def _close(self) -> Any:
        began = time.monotonic()
        result = self._instance.close()()
        if (blocked := time.monotonic() - began) > _BLOCKED_SECONDS:
            logger.warning(
                "environment %s blocked the event loop for %.1f s in close(). Make close() async, or set "
                'runtime = "thread" or "process".',
                self._instance.name,
                blocked,
            )
        return result

    async def _timed(self, work: Work, what: str, seconds: float | None) -> Any:
        self.busy = True
        try:
            return await self._run(work, what, seconds)
        finally:
            self.busy = False

    async def _run(self, work: Work, what: str = "", seconds: float | None = None) -> Any:
        if self._own_task is not None:
            return await self._own_task.run(work, seconds, partial(overdue, what, seconds))
        result = work()
        if not inspect.isawaitable(result):
            return result
        if seconds is None:
            return await result
        # In a task of its own, because code that ignores its cancellation would delay the answer.
        task = asyncio.ensure_future(result)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        except BaseException:
            await self._stop(task, what)
            raise
        if done:
            return task.result()
        await self._stop(task, what)
        raise overdue(what, seconds)

    async def _stop(self, task: asyncio.Future[Any], what: str) -> None:
        """Cancel a task, and leave it running if it does not end soon."""
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({task}, timeout=_UNWIND_SECONDS)
        task.add_done_callback(_forget)
        if not task.done():
            _left_running.add(task)
            logger.warning(
                "environment %s: %s was cancelled, but runs on in the event loop. Let asyncio.CancelledError pass, "
                'or set runtime = "process", whose calls can be stopped.',
                self._instance.name,
                what[:1].lower() + what[1:],
            )


_left_running: set[asyncio.Future[Any]] = set()
"""Cancelled tasks that have not ended. The event loop itself keeps only weak references to them."""


def _forget(task: asyncio.Future[Any]) -> None:
    _left_running.discard(task)
    if not task.cancelled():
        # Retrieve the exception, so that asyncio does not log it: the fault has been reported already.
        task.exception()


class _ThreadWorker(_InlineWorker):
    def __init__(
        self,
        instance: Instance,
        bounds: Bounds,
        workers: set[_InlineWorker],
        own_task: OwnTask | None,
        threads: OwnThread | _AnyThread,
        limiter: anyio.CapacityLimiter,
    ):
        super().__init__(instance, bounds, workers, own_task)
        self._threads = threads
        self._limiter = limiter
        self._left = False

    async def close(self) -> None:
        # An abandoned thread closes the environment itself when its call is done.
        self._workers.discard(self)
        try:
            if not self._left:
                await super().close()
        finally:
            self._threads.end()

    def _closing(self) -> Work:
        return self._instance.close()

    async def _run(self, work: Work, what: str = "", seconds: float | None = None) -> Any:
        function = getattr(work, "func", work)
        if inspect.iscoroutinefunction(function):
            return await super()._run(work, what, seconds)
        close = self._instance.close()
        leavable = _Leavable(work, close if work != close else None)
        await self._take_place()
        try:
            with anyio.move_on_after(seconds):
                result = await self._threads.run(leavable.run)
                if inspect.isawaitable(result):
                    return await super()._run(lambda: result, what, seconds)
                return result
        finally:
            self._limiter.release_on_behalf_of(self)
            self._left = leavable.leave()
        raise overdue(what, seconds)

    async def _take_place(self) -> None:
        try:
            # A thread is usually free; then no turn of the event loop is needed.
            self._limiter.acquire_on_behalf_of_nowait(self)
        except anyio.WouldBlock:
            await self._limiter.acquire_on_behalf_of(self)


class _Leavable:
    """Work in a thread that may be abandoned. Abandoned work closes the environment when it is done."""

    def __init__(self, work: Work, close: Work | None):
        self._work = work
        self._close = close
        self._lock = threading.Lock()
        self._done = False
        self._left = False

    def run(self) -> Any:
        try:
            return self._work()
        finally:
            with self._lock:
                self._done = True
            if self._left and self._close is not None and not inspect.iscoroutinefunction(self._close):
                self._close()

    def leave(self) -> bool:
        """Abandon the work. Returns false if it was already done."""
        with self._lock:
            self._left = not self._done
            return self._left
