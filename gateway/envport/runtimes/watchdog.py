"""Ends episodes whose processes have used more than they may, during calls and between them."""

from __future__ import annotations

import asyncio

from envport.runtimes.episode_process import EpisodeProcess

__all__ = ["Watchdog"]

_SECONDS = 0.1
# Processes are spread over this many parts of the period, so that one check never blocks the loop for all of them.
_PARTS = 5
# Processes without a running call are checked only once in this many periods.
_IDLE_PERIODS = 10


class Watchdog:
    """Looks at episodes: every 100 ms while a call is running, and every second between calls."""

    def __init__(self) -> None:
        self._watched: list[dict[EpisodeProcess, int]] = [{} for _ in range(_PARTS)]
        self._round = 0
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, process: EpisodeProcess) -> None:
        """Look at a process with a meter until it is gone."""
        self._number += 1
        self._watched[self._number % _PARTS][process] = self._number
        if self._timer is None:
            self._look_later()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_SECONDS / _PARTS, self._look)

    def _look(self) -> None:
        self._timer = None
        self._round += 1
        period, watched = self._round // _PARTS, self._watched[self._round % _PARTS]
        for process, number in list(watched.items()):
            if process.lost is not None:
                del watched[process]
            elif process.busy or (period + number // _PARTS) % _IDLE_PERIODS == 0:
                process.check()
        if any(self._watched):
            self._look_later()
