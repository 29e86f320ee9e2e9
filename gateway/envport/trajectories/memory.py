"""A store that keeps trajectories in memory."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from envport.trajectories.archive import Archive, StoredEpisode
from envport.trajectories.lines import json_line
from envport.trajectories.store import EpisodeSnapshot, EpisodeState, ResumePoint, Totals
from envport.types import Observation, StepRecord

__all__ = ["MemoryTrajectories"]


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
        self.resumes = False
        self.archive: Archive | None = None
        self.where: str | None = None
        self._max_bytes = max_bytes
        self._max_records = max_records
        self._max_total_bytes = max_total_bytes
        self._total = 0
        self._recordings: dict[str, _Recording] = {}
        # Recordings that hold data, in the order in which they began to hold it.
        self._oldest: deque[_Recording] = deque()

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Do nothing: there is nothing to do in the background."""
        yield

    def check(self) -> None:
        """Do nothing: there is always room for the latest calls."""

    async def begin(
        self,
        episode_id: str,
        first_observation: Observation,
        snapshot: Callable[[], EpisodeSnapshot],
        point: ResumePoint | None = None,
    ) -> None:
        """Start the recording of an episode. A recording that exists is replaced."""
        self.forget(episode_id)
        size = sum(len(block.get("text") or block.get("data") or "") for block in first_observation.content)
        recording = self._recordings[episode_id] = _Recording(first_observation, size)
        self._total += size
        self._queue(recording)
        self._make_room()

    async def append(
        self, episode_id: str, record: StepRecord, totals: Totals, point: ResumePoint | None = None
    ) -> None:
        """Record a call."""
        recording = self._recordings.get(episode_id)
        if recording is None:
            return
        # As text, a record takes an eighth of the memory, and the garbage collector does not have to walk it.
        line = json_line(record)
        recording.lines.append(line)
        recording.size += len(line)
        self._total += len(line)
        while len(recording.lines) > self._max_records or (
            recording.size > self._max_bytes and len(recording.lines) > 1
        ):
            self._total -= recording.drop_oldest()
        self._queue(recording)
        self._make_room()

    def end(self, episode_id: str, state: EpisodeState, snapshot: Callable[[], EpisodeSnapshot]) -> None:
        """Do nothing: the table remembers how its latest episodes ended."""

    async def left(self) -> Sequence[StoredEpisode]:
        """None: memory is gone with its gateway."""
        return []

    async def resume_point(self, episode_id: str) -> ResumePoint | None:
        """None is recorded."""
        return None

    def leave(self) -> None:
        """Do nothing: memory is gone with its gateway."""

    async def read(self, episode_id: str) -> tuple[Observation, Sequence[StepRecord], int]:
        """The first observation, the calls that are kept (oldest first), and how many older calls were dropped."""
        recording = self._recordings.get(episode_id)
        if recording is None:
            return Observation(), [], 0
        records = [StepRecord.model_validate(json.loads(line)) for line in recording.lines]
        return recording.first_observation, records, recording.dropped

    def forget(self, episode_id: str) -> None:
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
