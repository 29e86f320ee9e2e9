"""Telling watchers of a store that something was recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

__all__ = ["Changes"]


class _Watcher:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._handles: set[str] = set()
        self._some = asyncio.Event()

    def tell(self, handles: frozenset[str]) -> None:
        self._handles |= handles
        self._some.set()

    async def __aiter__(self) -> AsyncIterator[frozenset[str]]:
        while True:
            await self._some.wait()
            handles, self._handles = frozenset(self._handles), set()
            self._some.clear()
            yield handles


class Changes:
    """The watchers of a store."""

    def __init__(self) -> None:
        self._watchers: set[_Watcher] = set()

    @property
    def watched(self) -> bool:
        """Whether there are watchers, so that changes have to be reported soon."""
        return bool(self._watchers)

    def publish(self, handles: frozenset[str]) -> None:
        """Tell all watchers. May be called in any thread.

        Args:
            handles: The episodes that something was recorded of.
        """
        if handles:
            for watcher in list(self._watchers):
                # The loop of a watcher that has left may be closed.
                with suppress(RuntimeError):
                    watcher.loop.call_soon_threadsafe(watcher.tell, handles)

    @asynccontextmanager
    async def watch(self) -> AsyncGenerator[AsyncIterator[frozenset[str]]]:
        """Watch: yields the handles of what has changed since the last time."""
        watcher = _Watcher()
        self._watchers.add(watcher)
        try:
            yield aiter(watcher)
        finally:
            self._watchers.discard(watcher)
