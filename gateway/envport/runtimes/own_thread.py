"""The thread of an environment that is bound to one: everything that it does runs there, from its constructor on."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from typing import Any

from envport.runtimes.instance import Work

__all__ = ["OwnThread"]

_Job = tuple[Work, contextvars.Context, asyncio.AbstractEventLoop, "asyncio.Future[tuple[Any, BaseException | None]]"]


class OwnThread:
    """A thread that does one piece of work after another.

    A daemon, unlike the thread of an executor: Python's exit must not wait for a tool that hangs.

    Args:
        name: Name of the thread.
    """

    def __init__(self, name: str):
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    async def run(self, work: Work) -> Any:
        """Do a piece of work. If the caller is cancelled, the work goes on without it."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        self._jobs.put((work, contextvars.copy_context(), loop, answer))
        value, error = await answer
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        """Let the thread end when its work is done."""
        self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, context, loop, answer = job
            outcome = context.run(_outcome, work)
            try:
                loop.call_soon_threadsafe(_settle, answer, outcome)
            except RuntimeError:
                # The event loop has ended, and nobody waits any more.
                return
            del job, work, context, loop, answer, outcome


def _outcome(work: Work) -> tuple[Any, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:
        return None, error


def _settle(answer: asyncio.Future[Any], outcome: tuple[Any, BaseException | None]) -> None:
    if not answer.done():
        answer.set_result(outcome)
