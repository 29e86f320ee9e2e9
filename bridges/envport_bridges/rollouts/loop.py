"""An event loop in its own thread, for callers without one."""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

__all__ = ["BackgroundLoop", "quick_handover"]

ResultT = TypeVar("ResultT")

_HANDOVER_SECONDS = 0.0001


@contextmanager
def quick_handover() -> Generator[None]:
    """Have threads that compute hand over Python's lock soon, and not after 5 ms.

    A thread that computes while episodes are played holds up the loop that plays them, and is held up by it: calls
    would be sent late, and their results noticed late.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_HANDOVER_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # uvloop does not exist for Windows.
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class _Inbox:
    """Hands work to an event loop from other threads. One wake-up is enough for all that is there by then."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        # Weak, because inboxes are kept for as long as their loops exist.
        self._loop_of = weakref.ref(loop)
        self._work: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._woken = False
        self._closed = False

    def put(self, work: Callable[[], None]) -> None:
        """Have the loop do some work.

        Raises:
            RuntimeError: The inbox or the loop is closed.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the event loop was stopped")
            self._work.append(work)
            if self._woken:
                return
            self._woken = True
        loop = self._loop_of()
        try:
            if loop is None:
                raise RuntimeError("the event loop is gone")
            loop.call_soon_threadsafe(self._do)
        except RuntimeError:
            self._woken = False
            raise

    def close(self) -> None:
        """Take no more work, and do what is there. Call it in the loop's thread."""
        with self._lock:
            self._closed = True
        self._do()

    def _do(self) -> None:
        # First, so that whatever comes from now on wakes the loop again.
        self._woken = False
        for _ in range(len(self._work)):
            self._work.popleft()()


class BackgroundLoop:
    """Runs coroutines in a daemon thread until it is stopped.

    Args:
        name: Name of the thread.
    """

    def __init__(self, name: str):
        self._loop = _new_loop()
        self._inbox = _Inbox(self._loop)
        self._callers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Inbox] = weakref.WeakKeyDictionary()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        # Whoever has handed over work waits for its end, also if it has not begun.
        self._inbox.close()
        remaining = asyncio.all_tasks(self._loop)
        for task in remaining:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*remaining, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def submit(self, work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        """Start a coroutine, in the context of the caller.

        Raises:
            RuntimeError: The loop was stopped.
        """
        future = Future[ResultT]()
        cancel = self._start(work, future.cancelled, partial(_hand_over, future))
        future.add_done_callback(lambda future: cancel() if future.cancelled() else None)
        return future

    def _start(
        self,
        work: Coroutine[Any, Any, ResultT],
        abandoned: Callable[[], bool],
        done: Callable[[asyncio.Task[ResultT]], None],
    ) -> Callable[[], None]:
        """Start a coroutine, in the context of the caller, unless it is abandoned by then; returns what cancels it.

        Raises:
            RuntimeError: The loop was stopped.
        """
        context, tasks = copy_context(), list[asyncio.Task[ResultT]]()

        def start() -> None:
            if abandoned():
                work.close()
                return
            tasks.append(task := self._loop.create_task(work, context=context))
            task.add_done_callback(done)

        def stop() -> None:
            for task in tasks:
                task.cancel()

        def cancel() -> None:
            # The loop may be stopped by now, and its tasks with it.
            with suppress(RuntimeError):
                self._inbox.put(stop)

        try:
            self._inbox.put(start)
        except RuntimeError:
            work.close()
            raise
        return cancel

    def run(self, work: Coroutine[Any, Any, ResultT], timeout: float | None = None) -> ResultT:
        """Run a coroutine and wait for its result.

        Raises:
            TimeoutError: It took longer than `timeout` seconds and was cancelled.
        """
        future = self.submit(work)
        try:
            return future.result(timeout)
        except BaseException:
            # The caller no longer waits, after a timeout or an interrupt.
            future.cancel()
            raise

    async def run_async(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine for a caller in another event loop, and wait for its result. It is cancelled with its caller.

        Raises:
            RuntimeError: The loop was stopped.
        """
        loop = asyncio.get_running_loop()
        caller = self._callers.get(loop)
        if caller is None:
            caller = self._callers[loop] = _Inbox(loop)
        answer: asyncio.Future[ResultT] = loop.create_future()

        def done(task: asyncio.Task[ResultT]) -> None:
            # The caller's loop may be closed by now.
            with suppress(RuntimeError):
                caller.put(partial(_settle, answer, task))

        cancel = self._start(work, answer.cancelled, done)
        try:
            return await answer
        except asyncio.CancelledError:
            cancel()
            raise

    def stop(self) -> None:
        """Stop the loop and wait for its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)


def _hand_over(future: Future[ResultT], task: asyncio.Task[ResultT]) -> None:
    if task.cancelled():
        future.cancel()
        future.set_running_or_notify_cancel()
    elif not future.set_running_or_notify_cancel():
        # Nobody waits for it any more.
        task.exception()
    elif (error := task.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


def _settle(answer: asyncio.Future[ResultT], task: asyncio.Task[ResultT]) -> None:
    if task.cancelled():
        answer.cancel()
    elif answer.cancelled():
        task.exception()
    elif (error := task.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())
