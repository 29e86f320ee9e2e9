"""An event loop in its own thread, for callers without one."""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar, cast

__all__ = ["BackgroundLoop", "quick_handover"]

ResultT = TypeVar("ResultT")

# Takes the result of some work, or else its error.
_Settle = Callable[[Any, BaseException | None], None]

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
        except BaseException:
            # Also at an interrupt of the thread. Otherwise nobody would wake the loop again.
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


class _Answer(Generic[ResultT]):
    """The result of some work, for the one thread that waits for it. Costs less than a `Future`."""

    __slots__ = ("_error", "_result", "_there")

    def __init__(self) -> None:
        self._there = threading.Lock()
        self._there.acquire()

    def settle(self, result: ResultT | None, error: BaseException | None) -> None:
        self._result, self._error = result, error
        self._there.release()

    def wait(self, timeout: float | None) -> ResultT:
        if not self._there.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            raise TimeoutError
        if self._error is None:
            return cast("ResultT", self._result)
        try:
            raise CancelledError if isinstance(self._error, asyncio.CancelledError) else self._error
        finally:
            # The traceback of the error leads back here.
            del self._error


class _Work(Generic[ResultT]):
    """A coroutine that is run in the loop, in the context of whoever hands it over.

    Args:
        work: The coroutine.
        loop: The loop.
        settle: Called in the loop with the result, or with the error, unless the work was given up before it began.
    """

    __slots__ = ("_begun", "_context", "_given_up", "_loop", "_settle", "_task", "_work")

    def __init__(
        self,
        work: Coroutine[Any, Any, ResultT],
        loop: asyncio.AbstractEventLoop,
        settle: _Settle,
    ):
        self._work = work
        self._loop = loop
        self._settle = settle
        self._context = copy_context()
        self._begun = self._given_up = False
        self._task: asyncio.Task[None] | None = None

    def give_up(self) -> None:
        """Say that nobody waits any more, from any thread. `stop` then has to be called in the loop."""
        self._given_up = True

    def start(self) -> None:
        """Begin, in the loop."""
        if self._given_up:
            self._work.close()
        else:
            self._task = self._loop.create_task(self._carried_out(), context=self._context)

    def stop(self) -> None:
        """Cancel the coroutine, in the loop."""
        if self._task is not None:
            self._task.cancel()
        if not self._begun:
            self._work.close()

    async def _carried_out(self) -> None:
        self._begun = True
        try:
            result = await self._work
        except BaseException as error:
            self._end(None, error)
        else:
            self._end(result, None)

    def _end(self, result: ResultT | None, error: BaseException | None) -> None:
        # Not in a callback of the task: that would be called a turn of the loop later.
        settle = self._settle
        # The traceback of the error leads here. Whoever is told of the error must not be held by it.
        del self._settle
        settle(result, error)


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
        # Whoever has handed over work waits for its end, also if it has not begun. Only what has begun can be
        # cancelled.
        self._inbox.close()
        self._loop.run_until_complete(asyncio.sleep(0))
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
        started = self._start(work, partial(_hand_over, future))
        future.add_done_callback(lambda future: self._cancel(started) if future.cancelled() else None)
        return future

    def _start(self, work: Coroutine[Any, Any, ResultT], settle: _Settle) -> _Work[ResultT]:
        """Start a coroutine, in the context of the caller.

        Raises:
            RuntimeError: The loop was stopped.
        """
        started = _Work(work, self._loop, settle)
        try:
            self._inbox.put(started.start)
        except RuntimeError:
            work.close()
            raise
        return started

    def _cancel(self, work: _Work[Any]) -> None:
        work.give_up()
        # The loop may be stopped by now, and its tasks with it.
        with suppress(RuntimeError):
            self._inbox.put(work.stop)

    def run(self, work: Coroutine[Any, Any, ResultT], timeout: float | None = None) -> ResultT:
        """Run a coroutine and wait for its result.

        Raises:
            TimeoutError: It took longer than `timeout` seconds and was cancelled.
        """
        answer = _Answer[ResultT]()
        started = self._start(work, answer.settle)
        try:
            return answer.wait(timeout)
        except BaseException:
            # The caller no longer waits, after a timeout or an interrupt.
            self._cancel(started)
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

        def settle(result: ResultT | None, error: BaseException | None) -> None:
            # The caller's loop may be closed by now.
            with suppress(RuntimeError):
                caller.put(partial(_settle, answer, result, error))

        started = self._start(work, settle)
        try:
            return await answer
        except asyncio.CancelledError:
            self._cancel(started)
            raise

    def stop(self) -> None:
        """Stop the loop and wait for its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)


def _hand_over(future: Future[Any], result: Any, error: BaseException | None) -> None:
    if isinstance(error, asyncio.CancelledError):
        future.cancel()
        future.set_running_or_notify_cancel()
    elif not future.set_running_or_notify_cancel():
        # Nobody waits for it any more.
        return
    elif error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _settle(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if isinstance(error, asyncio.CancelledError):
        answer.cancel()
    elif error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
