"""Reads from the store what an episode started from, to resume it after a restart or to copy it."""

from __future__ import annotations

from functools import partial

from envport.definition import EnvironmentDefinition
from envport.episodes.past import NotPutBack, Past, origin_of
from envport.episodes.requests import EpisodeStart, reading
from envport.errors import EnvportError
from envport.trajectories import Archive, ResumePoint, StoredEpisode
from envport.types import StepRecord

__all__ = ["past_of", "require_same", "start_of"]


def require_same(spec: EnvironmentDefinition, stored: StoredEpisode) -> None:
    """Check that an environment is the one that an episode was played with.

    Raises:
        NotPutBack: It is another one, as far as the store can tell.
    """
    name, now, then = spec.name, origin_of(spec), stored.origin
    if stored.environment_version != spec.cls.version:
        raise NotPutBack(
            f"its environment {name!r} has version {spec.cls.version} now, and had {stored.environment_version}"
        )
    if then.source is not None and then.source != now.source:
        raise NotPutBack(f"the source of its environment {name!r} has changed")
    if then.options is not None and then.options != now.options:
        raise NotPutBack(f"its environment {name!r} is served with other options or limits now")


async def start_of(spec: EnvironmentDefinition, stored: StoredEpisode) -> EpisodeStart:
    """What a stored episode started from.

    Raises:
        NotPutBack: Its task or its tools are not there any more.
    """
    info = stored.info
    try:
        task = info.task
        if info.split is not None and info.task_index is not None:
            task = await reading(spec, partial(spec.task, info.split, info.task_index))
        tools = spec.toolset_for(task)
    except EnvportError as error:
        raise NotPutBack(f"its task cannot be read: {error}") from None
    if task is not None and info.task is not None and task.id != info.task.id:
        raise NotPutBack(f"its task was {info.task.id!r}, and at its place there is {task.id!r} now")
    if tools.fingerprint != info.fingerprint:
        raise NotPutBack(f"the tools of its environment {spec.name!r} have changed")
    if info.seed is None:
        raise NotPutBack("its seed is not known")
    return EpisodeStart(info.seed, tools, info.split, task, info.task_index)


async def past_of(archive: Archive, stored: StoredEpisode, point: ResumePoint | None = None) -> Past:
    """The calls of a stored episode.

    Args:
        archive: The store.
        stored: The episode.
        point: What was recorded to resume it.

    Raises:
        StoreUnavailable: They cannot be read now.
    """
    handle, info = stored.info.episode_id, stored.info
    first = (await archive.episode(handle)).first_observation
    steps = await archive.steps(handle)
    return Past(first, steps, info.created_at, info.resets, point, _played_seconds(steps))


def _played_seconds(steps: list[StepRecord]) -> float:
    """How long an episode was played. The time in which no gateway ran does not count."""
    return steps[-1].started_at + steps[-1].seconds - steps[0].started_at if steps else 0.0
