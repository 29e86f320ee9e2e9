"""Environments that set something up once for all of their episodes. They note what happens in the folder `notes`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

from envport import Environment, Task, tool


class _Noting(Environment):
    def __init__(self, notes: str = "") -> None:
        self.notes = Path(notes)

    def note(self, line: str) -> None:
        with (self.notes / "log").open("a") as file:
            file.write(f"{line}\n")

    def reset(self, *, seed: int, task: Task | None) -> str:
        return f"{self.prepared}"

    @tool
    def look(self) -> str:
        """Say what was prepared."""
        return f"{self.prepared}"

    def close(self) -> None:
        if self.prepared is not None:
            self.note("closed")


class Loads(_Noting):
    """Loads something large."""

    @contextlib.contextmanager
    def prepare(self) -> Generator[Any]:
        if (self.notes / "fail").exists():
            raise OSError("no license")
        self.note(f"loaded in the gateway: {os.getpid() == int((self.notes / 'pid').read_text())}")
        made_in = threading.get_ident()
        yield {"words": "w" * 300_000}
        self.note(f"unloaded in the same thread: {threading.get_ident() == made_in}")

    def reset(self, *, seed: int, task: Task | None) -> str:
        return f"{len(self.prepared['words'])}"


class Waits(Environment):
    """Is set up in a thread that goes on when nobody waits for it."""

    begun, go, unloaded = threading.Event(), threading.Event(), threading.Event()

    @contextlib.contextmanager
    def prepare(self) -> Generator[str]:
        self.begun.set()
        self.go.wait()
        try:
            yield "ready"
        finally:
            self.unloaded.set()

    def reset(self, *, seed: int, task: Task | None) -> str:
        return f"{self.prepared}"

    @tool
    def look(self) -> str:
        """Say what was prepared."""
        return f"{self.prepared}"


class Asks(_Noting):
    """Needs a secret."""

    @contextlib.contextmanager
    def prepare(self) -> Generator[int]:
        yield len(self.secrets["KEY"])


class Starts(_Noting):
    """Starts a server."""

    @contextlib.asynccontextmanager
    async def prepare(self) -> AsyncGenerator[str]:
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(asyncio.sleep(3600))
            self.note("started")
            yield "http://there"
            serving.cancel()
            self.note("stopped")


class Lock(_Noting):
    """Yields what cannot be sent to another process."""

    @contextlib.contextmanager
    def prepare(self) -> Generator[Any]:
        yield threading.Lock()


class Undecorated(_Noting):
    """Forgets the decorator."""

    async def prepare(self) -> Any:
        return "value"
