"""What is recorded beside calls, so that an episode can go on after a restart."""

from __future__ import annotations

import logging

from envport.definition import EnvironmentDefinition
from envport.errors import WorkerLost
from envport.runtimes import Worker
from envport.telemetry.subject import EpisodeSubject
from envport.trajectories import ResumePoint

__all__ = ["ResumePoints"]

logger = logging.getLogger(__name__)

# Storing a snapshot of this size is taken to cost as much as playing one call again.
_BYTES_FOR_A_CALL = 65_536


class ResumePoints:
    """Makes the resume points of one run of an episode.

    The environment's state is copied after each call. If its calls can be played again instead, large snapshots are
    made less often: N calls without a snapshot follow one of N times 64 KiB.

    Args:
        spec: The environment.
        subject: The episode, for logs.
    """

    def __init__(self, spec: EnvironmentDefinition, subject: EpisodeSubject):
        self._spec = spec
        self._subject = subject
        self._copied = spec.has_snapshots
        self._next = 0

    async def after(self, index: int, worker: Worker, call_id: str | None, *, over: bool = False) -> ResumePoint | None:
        """The point after a call; `None` if there is nothing to record.

        Args:
            index: Index of the call; 0 for the beginning.
            worker: Runs the environment.
            call_id: The id that the client gave the call.
            over: Whether the environment may not be asked any more.

        Raises:
            WorkerLost: The environment's process died, or took too long.
        """
        snapshot = await self._snapshot(worker) if self._copied and not over and index >= self._next else None
        if snapshot is None:
            return ResumePoint(index, call_id) if call_id is not None else None
        self._next = index + 1 + (len(snapshot) // _BYTES_FOR_A_CALL if self._spec.deterministic else 0)
        return ResumePoint(index, call_id, snapshot, index)

    async def _snapshot(self, worker: Worker) -> bytes | None:
        try:
            return await worker.snapshot()
        except WorkerLost:
            raise
        except Exception:
            self._copied = False
            logger.exception(
                "episode %s: environment %s broke in snapshot(); no further one is made of this episode",
                self._subject.episode_id,
                self._subject.environment,
                extra=self._subject.fields(),
            )
            return None
