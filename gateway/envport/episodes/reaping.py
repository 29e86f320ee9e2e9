"""Ending episodes whose time is over or that nobody uses, and forgetting ended ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from envport.clock import Clock
from envport.definition import EnvironmentDefinition
from envport.episodes.episode import Episode
from envport.episodes.limits import Limits

__all__ = ["Reaper"]

logger = logging.getLogger(__name__)

_SHORTEST_PERIOD, _LONGEST_PERIOD = 0.01, 5.0
# The part of a limit by which it may be exceeded.
_LATE = 1 / 20


class Reaper:
    """Looks through the episodes of a table now and then.

    Args:
        clock: The clock.
        limits: Limits on episodes.
        live: The live episodes.
        ended: The episodes that have ended and are remembered.
        start: Starts work that no caller waits for.
        forget: Forgets an ended episode.
    """

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        live: Callable[[], Iterable[Episode]],
        ended: Callable[[], Iterable[Episode]],
        start: Callable[[Callable[[], Coroutine[Any, Any, None]]], asyncio.Task[None]],
        forget: Callable[[str], None],
    ):
        self._clock = clock
        self._limits = limits
        self._live = live
        self._ended = ended
        self._start = start
        self._forget = forget
        self._period = _LONGEST_PERIOD
        self._unreapable: set[str] = set()

    def adapt(self, environments: Iterable[EnvironmentDefinition]) -> None:
        """Look as often as the limits of these environments ask for."""
        lifetimes = [self._limits.seconds(spec) for spec in environments]
        shortest = min([self._limits.idle_seconds, *(seconds for seconds in lifetimes if seconds is not None)])
        self._period = max(_SHORTEST_PERIOD, min(_LONGEST_PERIOD, shortest * _LATE))

    async def run(self) -> None:
        """Reap until cancelled."""
        while True:
            await self._clock.sleep(self._period)
            for episode in list(self._live()):
                self._guarded(self._reap_live, episode)
            for episode in list(self._ended()):
                self._guarded(self._reap_ended, episode)

    def forgotten(self, handle: str) -> None:
        """Note that an episode is not remembered any more."""
        self._unreapable.discard(handle)

    def _guarded(self, reap: Callable[[Episode], None], episode: Episode) -> None:
        """Reap an episode. If that fails, log it once and go on: the others must be reaped all the same."""
        try:
            reap(episode)
        except Exception:
            if episode.handle not in self._unreapable:
                self._unreapable.add(episode.handle)
                logger.exception("episode %s cannot be reaped", episode.handle, extra=episode.subject.fields())

    def _reap_live(self, episode: Episode) -> None:
        """End an episode whose time is over, and expire an idle one."""
        limit = self._limits.idle_seconds
        if episode.check_time():
            self._start(episode.release)
        elif episode.status == "running" and not episode.busy and self._unused(episode) >= limit:
            episode.end("expired", "expired", f"It expired after {limit / 60:g} minutes without a call.")
            self._start(episode.release)

    def _reap_ended(self, episode: Episode) -> None:
        """Forget an ended episode that nobody has used for twice the idle limit."""
        if not episode.busy and self._unused(episode) >= 2 * self._limits.idle_seconds:
            self._forget(episode.handle)

    def _unused(self, episode: Episode) -> float:
        return self._clock.monotonic() - episode.last_used
