"""Playing recorded episodes again, call by call, as they were recorded."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from envport.access import ANYONE
from envport.definition import EnvironmentDefinition
from envport.episodes import Episode, Episodes, OpenRequest
from envport.errors import EpisodeFailed, EpisodeOver, InvalidArguments, InvalidRequest, UnknownEpisode, UnknownTool
from envport.trajectories import MemoryTrajectories
from envport.types import Choice, Trajectory

__all__ = ["Replayer", "replayer"]

_ALL = 2**62


@asynccontextmanager
async def replayer(spec: EnvironmentDefinition) -> AsyncGenerator[Replayer]:
    """What plays recorded episodes of an environment again, in this process.

    Args:
        spec: The environment. It runs in the runtime that it declares.
    """
    kept = MemoryTrajectories(max_bytes=_ALL, max_records=_ALL, max_total_bytes=_ALL)
    episodes = Episodes({spec.name: spec}, trajectories=kept)
    async with episodes.run():
        yield Replayer(spec, episodes)


class Replayer:
    """Plays recorded episodes again. They are episodes like any other: with the same limits, checks and last words.

    Args:
        spec: The environment.
        episodes: The table that serves it.
    """

    def __init__(self, spec: EnvironmentDefinition, episodes: Episodes):
        self._spec = spec
        self._episodes = episodes

    async def play(self, recorded: Trajectory) -> Trajectory:
        """Make the recorded calls in a fresh episode with the same task and seed.

        Ends where the fresh episode takes no more calls, whatever is left of the recording.

        Args:
            recorded: The recording.

        Returns:
            What the fresh episode recorded.

        Raises:
            InvalidRequest: The recording does not say all that is needed, or the environment refuses its task.
            EpisodeFailed: The environment breaks when it is reset.
        """
        request = OpenRequest(self._spec.name, ANYONE.name, _choice(recorded))
        episode = await self._episodes.open_episode(request)
        try:
            _require_same_task(recorded, episode)
            await self._repeat(episode, recorded)
            return await self._episodes.trajectory(episode.handle, ANYONE.name)
        finally:
            await self._episodes.close(episode.handle, ANYONE.name)

    async def _repeat(self, episode: Episode, recorded: Trajectory) -> None:
        for step in recorded.steps:
            try:
                await episode.call(step.tool, step.arguments)
            except (InvalidArguments, UnknownTool):
                continue
            except (EpisodeOver, EpisodeFailed, UnknownEpisode):
                return
        if recorded.episode.score is not None:
            await episode.finish()


def _choice(recorded: Trajectory) -> Choice:
    info = recorded.episode
    if recorded.dropped_steps:
        raise InvalidRequest(f"the first {recorded.dropped_steps} calls are not kept any more")
    if any(step.error == "unreadable" for step in recorded.steps):
        raise InvalidRequest("one of its calls cannot be read")
    if info.seed is None:
        raise InvalidRequest("its seed is not known: the machine that knew it was lost")
    if info.task is None:
        return Choice(seed=info.seed)
    if info.task_index is not None:
        return Choice(info.split, info.task_index, info.seed)
    return Choice(info.split, info.task, info.seed)


def _require_same_task(recorded: Trajectory, fresh: Episode) -> None:
    before, now = recorded.episode.task, fresh.start.task
    if before is not None and now is not None and before.id != now.id:
        info = recorded.episode
        raise InvalidRequest(
            f"task {info.task_index} of split {info.split!r} is {now.id!r} here, and was {before.id!r} when it was "
            "played"
        )
