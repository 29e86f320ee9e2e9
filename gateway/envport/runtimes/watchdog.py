"""Watches the memory of processes in which a call is running."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from envport.errors import WorkerLost
from envport.runtimes.episode_process import EpisodeProcess

__all__ = ["Watchdog"]

_SECONDS = 0.1
# Processes are spread over this many parts of the period, so that one check never blocks the loop for all of them.
_PARTS = 5


class Watchdog:
    """Kills processes that use too much memory. It checks each one every 100 ms."""

    def __init__(self) -> None:
        self._watched: list[dict[EpisodeProcess, tuple[int, float]]] = [{} for _ in range(_PARTS)]
        self._next_part = 0
        self._next_process = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def watching(self, process: EpisodeProcess, most: int, limit_mb: float) -> Generator[None]:
        """Watch a process.

        Args:
            process: The process.
            most: Bytes that it may use.
            limit_mb: The limit in MiB, for the error message.
        """
        self._next_process = (self._next_process + 1) % _PARTS
        part = self._watched[self._next_process]
        part[process] = (most, limit_mb)
        if self._timer is None:
            self._look_later()
        try:
            yield
        finally:
            del part[process]

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_SECONDS / _PARTS, self._look)

    def _look(self) -> None:
        self._timer = None
        for process, (most, limit_mb) in self._watched[self._next_part].items():
            if process.memory() > most:
                process.kill(
                    WorkerLost(f"The episode took more memory than its limit of {limit_mb:g} MiB.", "out_of_memory")
                )
        self._next_part = (self._next_part + 1) % _PARTS
        if any(self._watched):
            self._look_later()
