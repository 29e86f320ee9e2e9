"""The seam that trajectories are recorded behind, and the store that keeps them in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from envport.types import Observation, StepRecord

__all__ = ["MemoryTrajectories", "TrajectoryStore"]


class TrajectoryStore(Protocol):
    """Keeps the calls of episodes. A call that `append` returned from is kept, as well as the store can."""

    async def begin(self, episode_id: str, first_observation: Observation) -> None:
        """Start recording an episode, or start its recording over."""
        ...

    async def append(self, episode_id: str, record: StepRecord) -> None:
        """Record a call."""
        ...

    async def read(self, episode_id: str) -> tuple[Observation, Sequence[StepRecord], int]:
        """The first observation, the calls that are kept, oldest first, and how many older ones are not."""
        ...

    async def forget(self, episode_id: str) -> None:
        """Drop an episode's recording."""
        ...


@dataclass(slots=True)
class _Recording:
    first_observation: Observation
    records: deque[tuple[int, StepRecord]] = field(default_factory=deque[tuple[int, StepRecord]])
    size: int = 0
    dropped: int = 0


class MemoryTrajectories:
    """Keeps trajectories in memory, and of each episode no more than a bounded part: the latest calls.

    Args:
        max_bytes: About how many bytes of observations and arguments to keep of one episode.
        max_records: How many calls to keep of one episode.
    """

    def __init__(self, max_bytes: int = 8 * 2**20, max_records: int = 10_000):
        self._max_bytes = max_bytes
        self._max_records = max_records
        self._recordings: dict[str, _Recording] = {}

    async def begin(self, episode_id: str, first_observation: Observation) -> None:
        """Start recording an episode, or start its recording over."""
        self._recordings[episode_id] = _Recording(first_observation)

    async def append(self, episode_id: str, record: StepRecord) -> None:
        """Record a call."""
        recording = self._recordings.get(episode_id)
        if recording is None:
            return
        size = _size(record)
        recording.records.append((size, record))
        recording.size += size
        while len(recording.records) > self._max_records or (
            recording.size > self._max_bytes and len(recording.records) > 1
        ):
            oldest, _ = recording.records.popleft()
            recording.size -= oldest
            recording.dropped += 1

    async def read(self, episode_id: str) -> tuple[Observation, Sequence[StepRecord], int]:
        """The first observation, the calls that are kept, oldest first, and how many older ones are not."""
        recording = self._recordings.get(episode_id)
        if recording is None:
            return Observation(), [], 0
        return recording.first_observation, [record for _, record in recording.records], recording.dropped

    async def forget(self, episode_id: str) -> None:
        """Drop an episode's recording."""
        self._recordings.pop(episode_id, None)


def _size(record: StepRecord) -> int:
    observation = record.observation
    return 256 + sum(
        map(_weight, (*observation.content, observation.structured_content, record.arguments, record.info))
    )


def _weight(value: Any) -> int:
    """About how many bytes a JSON value takes."""
    total, left = 0, [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, dict):
            left.extend(cast("dict[str, Any]", item).values())
        elif isinstance(item, list | tuple):
            left.extend(cast("list[Any]", item))
        total += 64
    return total
