"""The asyncio task of an async environment: everything that it does runs there, from `reset` to `close`.

So an environment may enter a cancel scope, a task group or another async context manager in `reset`, and leave it in
`close`. anyio allows that only within one task.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from typing import Any

from envport.errors import WorkerLost
from envport.runtimes.instance import Work

__all__ = ["OwnTask"]

_Job = tuple[Work, "asyncio.Future[tuple[Any, BaseException | None]]"]


class OwnTask:
    """A task that does one piece of work after another. It begins at the first one.

    Args:
        on_lost: Called if the environment's own tasks fail while no work is running.
    """

    def __init__(self, on_lost: Callable[[WorkerLost], None] | None = None):
        self._on_lost = on_lost
        self._jobs: deque[_Job] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._running: asyncio.Future[Any] | None = None
        self._done: asyncio.Future[None] | None = None
        self._cancelled = False
        self._ended = False

    async def run(self, work: Work, seconds: float | None, overdue: Callable[[], WorkerLost]) -> Any:
        """Do a piece of work. If it takes too long or the caller is cancelled, it is cancelled.

        Args:
            work: A method with its arguments; its result may be awaitable.
            seconds: How long it may take.
            overdue: Makes the error if it takes longer.

        Raises:
            WorkerLost: It took too long.
            BaseException: What the work raised.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        self._jobs.append((work, answer))
        if self._task is None:
            self._task = loop.create_task(self._serve())
        elif self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        timer = loop.call_later(seconds, self._stop, answer, overdue) if seconds is not None else None
        try:
            value, error = await answer
        except asyncio.CancelledError:
            self._stop(answer, None)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if error is not None:
            raise error
        return value

    async def left_running(self, seconds: float) -> asyncio.Task[None] | None:
        """Wait for work that was cancelled. Returns the task if it runs on: nothing else can be done in it then.

        Args:
            seconds: How long to wait.
        """
        if self._done is None:
            return None
        await asyncio.wait({self._done}, timeout=seconds)
        return None if self._done.done() else self._task

    def end(self) -> None:
        """Let the task end. Work that is still running is cancelled."""
        self._ended = True
        if self._task is not None:
            self._task.cancel()

    def _stop(self, answer: asyncio.Future[Any], overdue: Callable[[], WorkerLost] | None) -> None:
        """Cancel a piece of work. The caller does not wait for its end, because it may swallow the cancellation."""
        if overdue is not None and not answer.done():
            answer.set_result((None, overdue()))
        self._jobs = deque(job for job in self._jobs if job[1] is not answer)
        if self._running is answer and self._task is not None:
            self._cancelled = True
            self._task.cancel()

    async def _serve(self) -> None:
        while not self._ended:
            if not self._jobs:
                await self._idle()
                continue
            work, self._running = self._jobs.popleft()
            self._done = done = asyncio.get_running_loop().create_future()
            value, error = await _outcome(work)
            done.set_result(None)
            answer, self._running = self._running, None
            if self._cancelled:
                # The work was cancelled, and not the task.
                self._cancelled = False
                _uncancel()
            if not answer.done():
                answer.set_result((value, error))

    async def _idle(self) -> None:
        """Wait for work."""
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await self._wake
        except asyncio.CancelledError:
            if self._ended:
                return
            # A task group that the environment has entered cancels the task that entered it when a child fails. Work
            # cannot go on, but the environment has to be closed in this task.
            _uncancel()
            if self._on_lost is not None:
                on_lost, self._on_lost = self._on_lost, None
                on_lost(WorkerLost("A background task of the environment failed."))


async def _outcome(work: Work) -> tuple[Any, BaseException | None]:
    try:
        value = work()
        return (await value if inspect.isawaitable(value) else value), None
    except BaseException as error:
        # Not even SystemExit may end the event loop.
        return None, error


def _uncancel() -> None:
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
