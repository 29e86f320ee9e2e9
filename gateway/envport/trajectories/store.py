"""The seam that trajectories are recorded behind, and the store that keeps them in memory."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

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
    first_size: int
    lines: deque[bytes] = field(default_factory=deque[bytes])
    size: int = 0
    dropped: int = 0
    queued: bool = False

    def drop_oldest(self) -> int:
        """Forget the oldest call and return how many bytes it took."""
        size = len(self.lines.popleft())
        self.size -= size
        self.dropped += 1
        return size


class MemoryTrajectories:
    """Keeps trajectories in memory, and no more than a bounded part of them: the latest calls of the latest episodes.

    Args:
        max_bytes: How many bytes of calls to keep of one episode.
        max_records: How many calls to keep of one episode.
        max_total_bytes: How many bytes of calls to keep in all; those of the oldest episodes go first.
    """

    def __init__(self, max_bytes: int = 8 * 2**20, max_records: int = 10_000, max_total_bytes: int = 512 * 2**20):
        self._max_bytes = max_bytes
        self._max_records = max_records
        self._max_total_bytes = max_total_bytes
        self._total = 0
        self._recordings: dict[str, _Recording] = {}
        # Recordings that hold calls, in the order in which they began to.
        self._oldest: deque[_Recording] = deque()

    async def begin(self, episode_id: str, first_observation: Observation) -> None:
        """Start recording an episode, or start its recording over."""
        await self.forget(episode_id)
        size = sum(len(block.get("text") or block.get("data") or "") for block in first_observation.content)
        recording = self._recordings[episode_id] = _Recording(first_observation, size)
        self._total += size
        self._queue(recording)
        self._make_room()

    async def append(self, episode_id: str, record: StepRecord) -> None:
        """Record a call."""
        recording = self._recordings.get(episode_id)
        if recording is None:
            return
        # As text a record takes an eighth of the memory, and nothing that the garbage collector has to walk.
        line = _line(record)
        recording.lines.append(line)
        recording.size += len(line)
        self._total += len(line)
        while len(recording.lines) > self._max_records or (
            recording.size > self._max_bytes and len(recording.lines) > 1
        ):
            self._total -= recording.drop_oldest()
        self._queue(recording)
        self._make_room()

    async def read(self, episode_id: str) -> tuple[Observation, Sequence[StepRecord], int]:
        """The first observation, the calls that are kept, oldest first, and how many older ones are not."""
        recording = self._recordings.get(episode_id)
        if recording is None:
            return Observation(), [], 0
        records = [StepRecord.model_validate(json.loads(line)) for line in recording.lines]
        return recording.first_observation, records, recording.dropped

    async def forget(self, episode_id: str) -> None:
        """Drop an episode's recording."""
        if (recording := self._recordings.pop(episode_id, None)) is not None:
            self._total -= recording.size + recording.first_size
            recording.first_size = 0
            recording.lines.clear()
            if len(self._oldest) > 2 * len(self._recordings) + 64:
                self._oldest = deque(self._recordings.values())
                for kept in self._oldest:
                    kept.queued = True

    def _queue(self, recording: _Recording) -> None:
        if not recording.queued:
            recording.queued = True
            self._oldest.append(recording)

    def _make_room(self) -> None:
        while self._total > self._max_total_bytes:
            recording = self._oldest[0]
            if recording.lines:
                self._total -= recording.drop_oldest()
            elif recording.first_size:
                self._total -= recording.first_size
                recording.first_size = 0
                recording.first_observation = Observation()
            else:
                recording.queued = False
                self._oldest.popleft()


def _line(record: StepRecord) -> bytes:
    try:
        return record.__pydantic_serializer__.to_json(record)
    except ValueError:
        # Half a character, which an argument may hold and UTF-8 may not, becomes U+FFFD.
        try:
            text = json.dumps(record.model_dump(), ensure_ascii=False)
        except RecursionError:
            # Such a call was refused; that it was made is what there is to keep.
            text = record.model_copy(update={"arguments": {}}).model_dump_json()
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
