"""The interface of trajectory stores, and the store that keeps trajectories in memory."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from envport.types import Observation, StepRecord

__all__ = ["MemoryTrajectories", "TrajectoryStore"]


class TrajectoryStore(Protocol):
    """Keeps the calls of episodes. After `append` returns, the call is stored as durably as the store allows.

    Attributes:
        at_once: Whether `begin` and `append` wait for nothing, so that no cancellation can reach them.
    """

    at_once: bool

    async def begin(self, episode_id: str, first_observation: Observation) -> None:
        """Start the recording of an episode. A recording that exists is replaced."""
        ...

    async def append(self, episode_id: str, record: StepRecord) -> None:
        """Record a call."""
        ...

    async def read(self, episode_id: str) -> tuple[Observation, Sequence[StepRecord], int]:
        """The first observation, the calls that are kept (oldest first), and how many older calls were dropped."""
        ...

    async def forget(self, episode_id: str) -> None:
        """Delete an episode's recording."""
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
        """Drop the oldest call, and return its size in bytes."""
        size = len(self.lines.popleft())
        self.size -= size
        self.dropped += 1
        return size


class MemoryTrajectories:
    """Keeps trajectories in memory, up to a limit: the latest calls of the latest episodes.

    Args:
        max_bytes: Maximum size of the calls of one episode, in bytes.
        max_records: Maximum number of calls of one episode.
        max_total_bytes: Maximum size of all episodes together, in bytes. Calls of the oldest episodes are dropped
            first.
    """

    def __init__(self, max_bytes: int = 8 * 2**20, max_records: int = 10_000, max_total_bytes: int = 512 * 2**20):
        self.at_once = True
        self._max_bytes = max_bytes
        self._max_records = max_records
        self._max_total_bytes = max_total_bytes
        self._total = 0
        self._recordings: dict[str, _Recording] = {}
        # Recordings that hold data, in the order in which they began to hold it.
        self._oldest: deque[_Recording] = deque()

    async def begin(self, episode_id: str, first_observation: Observation) -> None:
        """Start the recording of an episode. A recording that exists is replaced."""
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
        # As text, a record takes an eighth of the memory, and the garbage collector does not have to walk it.
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
        """The first observation, the calls that are kept (oldest first), and how many older calls were dropped."""
        recording = self._recordings.get(episode_id)
        if recording is None:
            return Observation(), [], 0
        records = [StepRecord.model_validate(json.loads(line)) for line in recording.lines]
        return recording.first_observation, records, recording.dropped

    async def forget(self, episode_id: str) -> None:
        """Delete an episode's recording."""
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
        # An argument may contain a lone surrogate, which UTF-8 cannot encode. It becomes U+FFFD.
        try:
            text = json.dumps(record.model_dump(), ensure_ascii=False)
        except RecursionError:
            # The arguments are nested too deeply, so the call was refused. Record the call without them.
            text = record.model_copy(update={"arguments": {}}).model_dump_json()
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
