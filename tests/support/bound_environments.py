"""Environments that are bound to one asyncio task, or to one thread."""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3
import threading
from contextlib import AsyncExitStack
from typing import Any

import anyio
import anyio.lowlevel

from envport import Environment, Task, tool

_mood: contextvars.ContextVar[str] = contextvars.ContextVar("mood", default="none")


class Scoped(Environment):
    """Enters a task group in `reset`, and leaves it in `close`."""

    def reset(self, *, seed: int, task: Task | None) -> Any:
        return self._begin()

    async def _begin(self) -> str:
        self._task = asyncio.current_task()
        self._stack = AsyncExitStack()
        self._group = await self._stack.enter_async_context(anyio.create_task_group())
        self._scope = self._stack.enter_context(anyio.CancelScope())
        self._asked: asyncio.Queue[anyio.Event] = asyncio.Queue()
        self._group.start_soon(self._serve)
        _mood.set("set in reset")
        return "begun"

    async def _serve(self) -> None:
        while True:
            (await self._asked.get()).set()

    @tool
    async def ask(self) -> str:
        """Ask the task in the background."""
        event = anyio.Event()
        self._asked.put_nowait(event)
        await event.wait()
        return f"answered; {_mood.get()}; same task: {asyncio.current_task() is self._task}"

    @tool
    def plain(self) -> str:
        """Answer without waiting."""
        return f"plain; {_mood.get()}; same task: {asyncio.current_task() is self._task}"

    @tool
    async def hang(self, stubbornly: bool = False) -> str:
        """Wait for ever, past the first cancellation if it is stubborn."""
        try:
            await anyio.sleep_forever()
        except BaseException:
            if not stubbornly:
                raise
        await asyncio.sleep(3600)
        return "never"

    @tool
    async def fail_behind(self) -> str:
        """Have a task in the background fail after the call."""
        self._group.start_soon(self._fail)
        return "soon"

    async def _fail(self) -> None:
        await anyio.lowlevel.checkpoint()
        raise RuntimeError("the background broke")

    async def close(self) -> None:
        if hasattr(self, "_stack"):
            self._group.cancel_scope.cancel()
            await self._stack.aclose()
            print("left in order", flush=True)


class HangsSoon(Scoped):
    """Has little time for a call."""

    call_seconds = 0.2
    close_seconds = 0.2


class Bound(Environment):
    """Holds a connection that only the thread that made it may use."""

    runtime = "thread"
    own_thread = True

    def __init__(self) -> None:
        self._made_in = threading.get_ident()

    def reset(self, *, seed: int, task: Task | None) -> str:
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute("create table said (words text)")
        return f"{threading.get_ident() == self._made_in}"

    @tool
    def say(self, words: str) -> str:
        """Note words, and say how many there are."""
        self._connection.execute("insert into said values (?)", [words])
        (count,) = self._connection.execute("select count(*) from said").fetchone()
        return f"{count} {threading.get_ident() == self._made_in}"

    @tool
    def thread(self) -> int:
        """Say which thread this is."""
        return threading.get_ident()

    def close(self) -> None:
        if hasattr(self, "_connection"):
            self._connection.close()
            print(f"closed in its thread: {threading.get_ident() == self._made_in}", flush=True)
