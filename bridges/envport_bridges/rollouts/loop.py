"""An event loop in its own thread, for callers without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["BackgroundLoop"]

ResultT = TypeVar("ResultT")


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # uvloop does not exist for Windows.
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class BackgroundLoop:
    """Runs coroutines in a daemon thread until it is stopped.

    Args:
        name: Name of the thread.
    """

    def __init__(self, name: str):
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        remaining = asyncio.all_tasks(self._loop)
        for task in remaining:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*remaining, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def submit(self, work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        """Start a coroutine.

        Raises:
            RuntimeError: The loop was stopped.
        """
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise

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

    def stop(self) -> None:
        """Stop the loop and wait for its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
