"""Tasks as the protocol lists them: what an agent may know of them, and how an episode of one is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio.lowlevel

from envport.definition import EnvironmentDefinition
from envport.episodes import OpenFields, OpenRequest
from envport.errors import InvalidRequest
from envport_bridges.ors.messages import OrsCreate, OrsError, OrsRange

__all__ = ["LISTED", "SEEDS", "open_request", "splits_of", "task_count", "task_spec", "task_specs"]

SEEDS = 1_000
"""How many tasks an environment without tasks has here: its seeds from 0."""

LISTED = 10_000
"""The most tasks of one answer."""

_SEED_SPLIT = "train"
_SPEC_FIELDS = ("id", "split", "task", "seed")
# Other requests are answered in between: an environment may read a task from a file.
_AT_A_TIME = 100


def splits_of(spec: EnvironmentDefinition) -> list[dict[str, str]]:
    """The splits, each with one of the protocol's three types."""
    return [
        {"name": name, "type": name if name in ("train", "validation", "test") else "validation"}
        for name in spec.splits or (_SEED_SPLIT,)
    ]


def task_count(spec: EnvironmentDefinition, split: str) -> int:
    """How many tasks a split has.

    Raises:
        OrsError: There is no such split.
    """
    if split not in (names := spec.splits or (_SEED_SPLIT,)):
        raise OrsError(400, f"Invalid split: {split!r}; the splits of {spec.name!r} are: {', '.join(map(repr, names))}")
    return spec.num_tasks(split) if spec.splits else SEEDS


def task_spec(spec: EnvironmentDefinition, split: str, index: int) -> dict[str, Any]:
    """A task as it is listed: what opens it, and nothing of its metadata, which may have the answer.

    Its seed is its index, so that all episodes of a group begin in the same way.

    Raises:
        OrsError: There is no such split or index.
    """
    count = task_count(spec, split)
    if not 0 <= index < count:
        raise OrsError(400, f"Invalid index: {index}; split {split!r} of {spec.name!r} has the tasks 0 to {count - 1}")
    if not spec.splits:
        return {"seed": index}
    return {"id": spec.task(split, index).id, "split": split, "task": index, "seed": index}


async def task_specs(spec: EnvironmentDefinition, asked: OrsRange) -> list[dict[str, Any]]:
    """The tasks of a slice.

    Raises:
        OrsError: There is no such split, or there are too many tasks.
    """
    indices = range(task_count(spec, asked.split))[asked.start : asked.stop]
    if len(indices) > LISTED:
        raise OrsError(
            400,
            f"{len(indices)} tasks cannot be listed at once; allowed: {LISTED}. Use num_tasks and get_task, or "
            "task_range for a part",
        )
    listed: list[dict[str, Any]] = []
    for index in indices:
        listed.append(task_spec(spec, asked.split, index))
        if index % _AT_A_TIME == 0:
            await anyio.lowlevel.checkpoint()
    return listed


def open_request(
    spec: EnvironmentDefinition, asked: OrsCreate, principal: str, secrets: Mapping[str, str]
) -> OpenRequest:
    """The request for the episode of a session.

    Args:
        spec: The environment.
        asked: What is to be played: a task by its index, or one as it was listed; or any task and seed, in the fields
            `split`, `task` and `seed` of `POST /episodes`.
        principal: Name of the principal that asks.
        secrets: Secrets for the environment, by name.

    Raises:
        OrsError: There is no such split or task, or it is another one by now.
        InvalidRequest: A field is malformed.
    """
    chosen = asked.task_spec
    if chosen is None:
        chosen = task_spec(spec, str(asked.split), int(asked.index or 0))
    if unknown := [key for key in chosen if key not in _SPEC_FIELDS]:
        raise InvalidRequest(f"task_spec has {', '.join(_SPEC_FIELDS)}, and not {', '.join(unknown)}")
    fields = {key: value for key, value in chosen.items() if key != "id" and value is not None}
    request = OpenFields.read({**fields, "environment": spec.name, "secrets": secrets}).request(principal)
    split, index = request.choice.split or spec.default_split, request.choice.task
    if "id" in chosen and isinstance(index, int) and split is not None:
        found = spec.task(split, index).id
        if found != chosen["id"]:
            raise OrsError(
                400, f"task {index} of split {split!r} is {found!r}, and not {chosen['id']!r}: list the tasks again"
            )
    return request
