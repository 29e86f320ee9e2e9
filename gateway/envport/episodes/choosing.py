"""Choosing the split, task and seed of an episode."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from random import Random
from types import NoneType
from typing import Any

from pydantic import ValidationError

from envport.episodes.play import EpisodeRequest
from envport.errors import InvalidRequest
from envport.registry import EnvironmentDefinition
from envport.types import Task

__all__ = ["checked_seed", "choose"]

_LARGEST_SEED = 2**63 - 1


def choose(
    spec: EnvironmentDefinition, split: str | None, task: int | Task | Mapping[str, Any] | None, seed: int | None
) -> EpisodeRequest:
    """Choose the split, task and seed of an episode; see `Episodes.open` for the arguments.

    Raises:
        UnknownTask: There is no such split or task.
        InvalidRequest: The seed or the task is malformed.
    """
    seed = secrets.randbelow(2**31) if seed is None else checked_seed(seed)
    if isinstance(task, Task):
        return EpisodeRequest(seed=seed, split=split, task=task)
    if isinstance(task, Mapping):
        try:
            return EpisodeRequest(seed=seed, split=split, task=Task.model_validate(dict(task)))
        except ValidationError as error:
            raise InvalidRequest(f"task is malformed: {error.errors(include_url=False)[0]['msg']}") from None
    if type(task) not in (int, NoneType):
        raise InvalidRequest("task has to be an index into the split, or a task with an id")
    split = split if split is not None else spec.default_split
    if split is None:
        if task is not None:
            raise InvalidRequest(f"environment {spec.name!r} has no tasks, so no task can be chosen by index")
        return EpisodeRequest(seed=seed)
    index = Random(seed).randrange(spec.num_tasks(split)) if task is None else task
    return EpisodeRequest(seed=seed, split=split, task=spec.task(split, index), task_index=index)


def checked_seed(seed: int) -> int:
    """Return the seed if it is valid.

    Raises:
        InvalidRequest: The seed is out of range, or not an integer.
    """
    if type(seed) is not int or not 0 <= seed <= _LARGEST_SEED:
        raise InvalidRequest(f"seed is {seed!r}; it has to be an integer from 0 to {_LARGEST_SEED}")
    return seed
