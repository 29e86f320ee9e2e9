"""What all episodes of a table share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from envport.clock import Clock
from envport.episodes.limits import Limits
from envport.telemetry.subject import EpisodeSubject
from envport.trajectories import TrajectoryStore
from envport.types import Outcome

__all__ = ["EpisodeContext"]


@dataclass(frozen=True, slots=True)
class EpisodeContext:
    """What all episodes of a table share.

    Attributes:
        clock: The clock.
        limits: Limits on time and memory.
        trajectories: Where calls are recorded.
        ended: Called each time an episode gets an outcome.
        released: Called each time an episode has ended and freed its environment.
        start: Starts work that no caller waits for.
    """

    clock: Clock
    limits: Limits
    trajectories: TrajectoryStore
    ended: Callable[[EpisodeSubject, Outcome], None]
    released: Callable[[EpisodeSubject], None]
    start: Callable[[Callable[[], Coroutine[Any, Any, None]]], asyncio.Task[None]]
