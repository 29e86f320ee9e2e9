"""Rows of the training dataset: which episode each of them is."""

from __future__ import annotations

import hashlib
import json
import logging
import random
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from envport.errors import ConfigurationError
from envport.types import Choice, EnvironmentInfo, Task, text_prompt
from envport_bridges.chat import task_message

__all__ = [
    "RESERVED",
    "choice_of",
    "dataset_of",
    "metadata_of",
    "named_in_prompt",
    "plain_columns",
    "row_in_prompt",
    "row_of",
    "same_episode",
    "seed_of",
]

logger = logging.getLogger(__name__)

_EPISODE_COLUMNS = ("seed", "split", "task", "task_index")

RESERVED = frozenset(
    {
        "prompt",
        "split",
        "task",
        "task_id",
        "task_index",
        "seed",
        "environment",
        "environments",
        "completion",
        "completions",
        "completion_ids",
        "prompts",
        "image",
        "images",
        "trainer_state",
        "log_extra",
        "log_metric",
    }
)
"""Columns that are the bridge's or TRL's."""

_ROW = "envport_row"
"""The key of a prompt's last message that holds its row as JSON; chat templates pass over it."""

METADATA_PREFIX = "metadata_"
"""Prefix of a task's metadata key that would have the name of one of those columns."""


def seed_of(seed: int, position: int) -> int:
    """The seed of the row at a position: the same for every member of its group, different between rows."""
    return random.Random(f"{seed}/{position}").randrange(2**31)


def row_of(
    info: EnvironmentInfo, seed: int, split: str | None = None, index: int | None = None, task: Task | None = None
) -> dict[str, Any]:
    """Make a row.

    Args:
        info: The environment.
        seed: The episode's seed.
        split: The split of the task.
        index: The task's index.
        task: The task.
    """
    row: dict[str, Any] = {"prompt": [task_message(text_prompt(task, info.instructions))], "seed": seed}
    if task is not None:
        row |= {"split": split, "task_index": index, "task_id": task.id}
        row |= {_column(key): value for key, value in task.metadata.items()}
    return row


def _column(key: str) -> str:
    return f"{METADATA_PREFIX}{key}" if key in RESERVED or not key else key


def dataset_of(rows: Sequence[dict[str, Any]]) -> Any:
    """The rows as a `datasets.Dataset`."""
    datasets: Any = import_module("datasets")
    return datasets.Dataset.from_list(plain_columns(rows))


def plain_columns(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make every column of one type, as Arrow needs it: where values do not agree, they become JSON text.

    Args:
        rows: The rows; what is missing in one becomes `None`.
    """
    columns = dict.fromkeys(key for row in rows for key in row)
    mixed = {column for column in columns if not _agree([row[column] for row in rows if column in row])}
    if mixed:
        logger.warning(
            "these metadata columns hold values of different shapes, and become JSON text: %s", sorted(mixed)
        )
    return [
        {
            column: json.dumps(row.get(column)) if column in mixed and column in row else row.get(column)
            for column in columns
        }
        for row in rows
    ]


def _agree(values: list[Any]) -> bool:
    shapes = {_shape(value) for value in values if value is not None}
    return len(shapes) <= 1


def _shape(value: Any) -> str:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return "{" + ",".join(f"{key}:{_shape(fields[key])}" for key in sorted(fields)) + "}"
    if isinstance(value, list | tuple):
        return "[" + "|".join(sorted({_shape(item) for item in cast("Sequence[Any]", value)})) + "]"
    return type(value).__name__


def named_in_prompt(row: Mapping[str, Any]) -> dict[str, Any]:
    """The same row with a prompt that says which row it is: TRL hands the prompts alone to a `rollout_func`."""
    *before, last = cast("Sequence[Mapping[str, Any]]", row["prompt"])
    named = json.dumps({key: value for key, value in row.items() if key != "prompt"})
    return {**row, "prompt": [*before, {**last, _ROW: named}]}


def row_in_prompt(prompt: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The row that a prompt names.

    Raises:
        ConfigurationError: It names none.
    """
    named = prompt[-1].get(_ROW) if prompt else None
    if not named:
        raise ConfigurationError(
            "a prompt does not say which row it is: train and evaluate on `rollout_dataset` of a specification, and "
            "keep its prompts as they are"
        )
    return json.loads(named)


def same_episode(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two rows surely ask for the same episode."""
    if row.get("seed") is None:
        # The whole row decides, and it may hold what cannot be compared.
        return row.keys() == other.keys() and all(row[key] is other[key] for key in row)
    try:
        return all(row.get(column) == other.get(column) for column in _EPISODE_COLUMNS)
    except ValueError:
        # A task of one's own may hold arrays.
        return False


def choice_of(row: Mapping[str, Any]) -> Choice:
    """Read which episode a row asks for.

    A row without a seed gets one that follows from the row, so that the members of a group still agree.

    Args:
        row: The row as TRL passes it to `reset`.

    Raises:
        ConfigurationError: A column of the bridge holds what it cannot.
    """
    seed, split, task, index = (row.get(column) for column in _EPISODE_COLUMNS)
    if seed is None:
        logger.warning(
            "a dataset row has no seed: it is played with one made from the row's content, so equal rows play "
            "the same episode each time. Train on spec.train_dataset, or add a column 'seed'."
        )
        seed = _seed_from(row)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ConfigurationError(f"the dataset's column 'seed' holds {seed!r}; it has to be an integer")
    if index is not None and (not isinstance(index, int) or isinstance(index, bool)):
        raise ConfigurationError(f"the dataset's column 'task_index' holds {index!r}; it has to be an integer")
    own = cast("Mapping[str, Any]", task) if isinstance(task, Mapping) else None
    return Choice(seed=seed, split=str(split) if split is not None else None, task=own if own else index)


def _seed_from(row: Mapping[str, Any]) -> int:
    content = json.dumps(dict(row), sort_keys=True, default=repr).encode()
    return int.from_bytes(hashlib.sha256(content).digest()[:4], "big") >> 1


def metadata_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row that are neither the bridge's nor TRL's: the task's metadata, under its own keys."""
    return {
        key.removeprefix(METADATA_PREFIX): value
        for key, value in row.items()
        if key not in RESERVED and value is not None
    }
