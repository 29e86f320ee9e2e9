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

from envport.definition import EnvironmentDefinition
from envport.environment import Environment
from envport.errors import ConfigurationError, WorkerLost
from envport.player_code import require_player_code
from envport.runtimes.base import (
    NO_SECRETS,
    UNBOUNDED,
    Bounds,
    Load,
    ProgressSink,
    StepResult,
    Worker,
    contained,
    first_observation,
    legal_calls_of,
    reward_of,
)
from envport.runtimes.instance import Instance, Work
from envport.runtimes.own_task import OwnTask
from envport.runtimes.own_thread import OwnThread
from envport.runtimes.prepared import PreparedEnvironments
from envport.types import LegalCall, Observation, Task

__all__ = ["SCORING", "InlineRuntime", "ThreadRuntime", "check_player_code", "overdue"]

logger = logging.getLogger(__name__)

SCORING = "Scoring the final state"
"""What is done, for messages."""

_BLOCKED_SECONDS = 0.1
# After its cancellation, time for a coroutine to clean up before its environment is closed.
_UNWIND_SECONDS = 0.2


def overdue(what: str, seconds: float | None) -> WorkerLost:
    """The error for an operation that exceeded its time limit."""
    return WorkerLost(f"{what} took longer than its limit of {seconds:g} s.", "deadline")


async def check_player_code(spec: EnvironmentDefinition) -> None:
    """Check that this machine can run code of the player, if the environment does.

    Raises:
        ConfigurationError: It cannot; the message says what to install or allow.
    """
    if not spec.cls.runs_player_code:
        return
    try:
        await anyio.to_thread.run_sync(require_player_code)
    except ConfigurationError as error:
        raise ConfigurationError(f"environment {spec.name!r} cannot run: {error}") from None


def _prepares(spec: EnvironmentDefinition) -> bool:
    return spec.cls.prepare is not Environment.prepare


class _LocalRuntime:
    def __init__(self) -> None:
        self._open: set[_InlineWorker] = set()
        self._prepared = PreparedEnvironments()

    async def prepare(self, spec: EnvironmentDefinition) -> None:
        """Check that this machine can run the environment, and run its own `prepare`.

        Raises:
            ConfigurationError: It runs code of the player, and this machine cannot.
        """
        await check_player_code(spec)
        await self._prepared.value(spec)

    async def _value(self, spec: EnvironmentDefinition, bounds: Bounds) -> Any:
        """What the environment has prepared for its episodes."""
        try:
            async with asyncio.timeout(bounds.reset_seconds):
                return await self._prepared.value(spec)
        except TimeoutError:
            raise overdue("Preparing the environment", bounds.reset_seconds) from None

    def opens_at_once(self, spec: EnvironmentDefinition) -> bool:
        """Always false: its methods may run in threads."""
        return False

    def load(self) -> Load:
        """The current load."""
        return Load(len(self._open), sum(worker.busy for worker in self._open))

    async def memory(self) -> int | None:
        """`None`: the workers live in the gateway's own process."""
        return None

    async def forget(self, spec: EnvironmentDefinition) -> None:
        """End what the environment has prepared."""
        await self._prepared.end(spec)

    async def drain(self) -> None:
        """End what the environments have prepared. Threads end by themselves."""
        await self._prepared.end()


class InlineRuntime(_LocalRuntime):
    """Runs environments in the event loop: for environments that are cheap and never block.

    A method that does block is named in the log, once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._blocking: set[tuple[str, str]] = set()

    async def open(
        self,
        spec: EnvironmentDefinition,
        bounds: Bounds = UNBOUNDED,
        on_lost: Callable[[WorkerLost], None] | None = None,
    ) -> Worker:
        """Create a worker with a new instance of the environment."""
        prepared = await self._value(spec, bounds) if _prepares(spec) else None
        with contained():
            instance = Instance(spec, prepared)
        return _InlineWorker(spec, instance, bounds, self._open, on_lost, self._blocking)

    def opens_at_once(self, spec: EnvironmentDefinition) -> bool:
        """Whether the environment has only sync methods, and prepares nothing."""
        return not spec.is_async and not _prepares(spec)


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
        prepared = await self._value(spec, bounds) if _prepares(spec) else None
        async with self._limiter:
            with anyio.move_on_after(bounds.reset_seconds):
                threads = OwnThread(f"envport {spec.name}") if spec.cls.own_thread else _AnyThread()
                try:
                    with contained():
                        instance = await threads.run(partial(Instance, spec, prepared))
                except BaseException:
                    threads.end()
                    raise
                return _ThreadWorker(spec, instance, bounds, self._open, on_lost, threads, self._limiter)
        raise overdue("Making the environment", bounds.reset_seconds)


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
    def __init__(
        self,
        spec: EnvironmentDefinition,
        instance: Instance,
        bounds: Bounds,
        workers: set[_InlineWorker],
        on_lost: Callable[[WorkerLost], None] | None,
        blocking: set[tuple[str, str]],
    ):
        self.busy = False
        self.at_once = not spec.is_async
        self._is_async = spec.is_async
        self._instance = instance
        self._bounds = bounds
        self._workers = workers
        self._blocking = blocking
        self._on_lost = on_lost
        self._own_task: OwnTask | None = None
        workers.add(self)

    async def reset(self, *, seed: int, task: Task | None, secrets: Mapping[str, str] = NO_SECRETS) -> Observation:
        work = self._instance.reset(seed=seed, task=task, secrets=secrets)
        with contained():
            return first_observation(
                await self._timed(work, "reset()", "Resetting the environment", self._bounds.reset_seconds)
            )

    async def call(self, tool: str, arguments: Mapping[str, Any], progress: ProgressSink | None) -> StepResult:
        work = self._instance.call(tool, arguments, progress)
        with contained():
            return StepResult.of(await self._timed(work, tool, "The call", self._bounds.call_seconds))

    async def legal_calls(self) -> list[LegalCall] | None:
        with contained():
            work = self._instance.legal_calls()
            return legal_calls_of(await self._timed(work, "legal_calls()", "legal_calls()", self._bounds.call_seconds))

    async def score(self) -> float | None:
        with contained():
            return reward_of(await self._timed(self._instance.score(), "score()", SCORING, self._bounds.score_seconds))

    async def final_state(self) -> Any:
        with contained():
            work = self._instance.final_state()
            state = await self._timed(work, "final_state()", SCORING, self._bounds.score_seconds)
            return to_jsonable_python(state)

    async def snapshot(self) -> bytes:
        with contained():
            work = self._instance.snapshot()
            return await self._timed(work, "snapshot()", "snapshot()", self._bounds.call_seconds)

    async def restore(self, snapshot: bytes) -> None:
        with contained():
            work = self._instance.restore(snapshot)
            await self._timed(work, "restore()", "restore()", self._bounds.reset_seconds)

    async def close(self) -> None:
        self._workers.discard(self)
        try:
            with contained():
                work, seconds = self._instance.close(), self._bounds.close_seconds
                await self._run(work, "close()", "Closing the environment", seconds)
        finally:
            if self._own_task is not None:
                self._own_task.end()

    def _overdue(self, what: str, seconds: float | None) -> WorkerLost:
        lost = overdue(what, seconds)
        if self._instance.player_code_runs:
            lost.fault = "player"
        return lost

    def _measured(self, work: Work, method: str) -> Any:
        began = time.monotonic()
        try:
            return work()
        finally:
            if (held := time.monotonic() - began) > _BLOCKED_SECONDS:
                self._blocked(method, held)

    async def _timed(self, work: Work, method: str, what: str, seconds: float | None) -> Any:
        self.busy = True
        try:
            return await self._run(work, method, what, seconds)
        finally:
            self.busy = False

    async def _run(self, work: Work, method: str, what: str, seconds: float | None) -> Any:
        if self._is_async:
            work = partial(self._measured, work, method)
            return await self._run_in_own_task(work, what, seconds, partial(self._overdue, what, seconds))
        result = self._measured(work, method)
        if not inspect.isawaitable(result):
            return result
        # A sync method has returned an awaitable.
        with anyio.CancelScope(shield=True):
            work = partial(_same, result)
            return await self._run_in_own_task(work, what, seconds, partial(self._overdue, what, seconds))
        raise AssertionError

    async def _run_in_own_task(
        self, work: Work, what: str, seconds: float | None, error: Callable[[], WorkerLost]
    ) -> Any:
        if self._own_task is None:
            self._own_task = OwnTask(self._on_lost)
        try:
            return await self._own_task.run(work, seconds, error)
        except (WorkerLost, asyncio.CancelledError):
            with anyio.CancelScope(shield=True):
                await self._leave_own_task(what)
            raise

    def _blocked(self, method: str, seconds: float) -> None:
        name = self._instance.name
        if (name, method) in self._blocking:
            return
        self._blocking.add((name, method))
        logger.warning(
            "environment %s blocked the event loop, and with it every other episode, for %.1f s in %s. Make it "
            'async, or set runtime = "thread" or "process". This is said once.',
            name,
            seconds,
            method if method.endswith("()") else f"tool {method!r}",
        )

    async def _leave_own_task(self, what: str) -> None:
        """Give up the environment's task if it ignores its cancellation. The environment is closed in another one."""
        own_task = self._own_task
        task = await own_task.left_running(_UNWIND_SECONDS) if own_task is not None else None
        if own_task is None or task is None:
            return
        own_task.end()
        self._own_task = OwnTask()
        _left_running.add(task)
        task.add_done_callback(_left_running.discard)
        logger.warning(
            "environment %s: %s was cancelled, but runs on in the event loop. Let asyncio.CancelledError pass, "
            'or set runtime = "process", whose calls can be stopped.',
            self._instance.name,
            what[:1].lower() + what[1:],
        )


_left_running: set[asyncio.Task[None]] = set()
"""Cancelled tasks that have not ended. The event loop itself keeps only weak references to them."""


def _same(value: Any) -> Any:
    return value


class _ThreadWorker(_InlineWorker):
    def __init__(
        self,
        spec: EnvironmentDefinition,
        instance: Instance,
        bounds: Bounds,
        workers: set[_InlineWorker],
        on_lost: Callable[[WorkerLost], None] | None,
        threads: OwnThread | _AnyThread,
        limiter: anyio.CapacityLimiter,
    ):
        super().__init__(spec, instance, bounds, workers, on_lost, set())
        self.at_once = False
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

    async def _run(self, work: Work, method: str, what: str, seconds: float | None) -> Any:
        function = getattr(work, "func", work)
        if inspect.iscoroutinefunction(function):
            return await super()._run(work, method, what, seconds)
        close = self._instance.close()
        leavable = _Leavable(work, close if work != close else None)
        await self._take_place()
        scope, result = anyio.move_on_after(seconds), None
        try:
            with scope:
                result = await self._threads.run(leavable.run)
        finally:
            self._limiter.release_on_behalf_of(self)
            self._left = leavable.leave()
        error = partial(self._overdue, what, seconds)
        if scope.cancelled_caught:
            lost = error()
            await anyio.to_thread.run_sync(self._instance.stop_player_code)
            raise lost
        if not inspect.isawaitable(result):
            return result
        left = None if seconds is None else max(0.0, scope.deadline - anyio.current_time())
        return await self._run_in_own_task(partial(_same, result), what, left, error)

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
