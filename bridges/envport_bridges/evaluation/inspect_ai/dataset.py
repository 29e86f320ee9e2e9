"""The samples of an evaluation: the episodes to play, with stable ids."""

from __future__ import annotations

import random
from dataclasses import dataclass

from inspect_ai.dataset import MemoryDataset, Sample

from envport.client import Client
from envport.errors import InvalidOption, UnknownTask
from envport.types import EnvironmentInfo, Task, text_prompt
from envport_bridges.agents.gateways.place import Place

__all__ = ["CLUSTER", "Selection", "dataset", "seed_of"]

CLUSTER = "task"
"""Metadata key for the task of a sample. Samples that share a task are not statistically independent."""

_DEFAULT_SAMPLES = 100
_MOST_SAMPLES = 10_000
_PAGE = 1_000


@dataclass(frozen=True)
class Selection:
    """Which episodes are played. The training bridge's dataset has the same episodes for the same arguments.

    Attributes:
        split: The split of the tasks; the first one if not given.
        num_tasks: How many samples. If there are more samples than tasks, tasks repeat with other seeds. If not given,
            all tasks once, or 100 samples if the environment has no tasks.
        seed: The samples' seeds are made from it.
    """

    split: str | None = None
    num_tasks: int | None = None
    seed: int = 0


def seed_of(seed: int, position: int) -> int:
    """The seed of the sample at a position, as in the training bridge."""
    return random.Random(f"{seed}/{position}").randrange(2**31)


def dataset(place: Place, info: EnvironmentInfo, selection: Selection) -> MemoryDataset:
    """The samples.

    Raises:
        InvalidOption: There are no samples, or too many tasks to play all of them by default.
        UnknownTask: There is no such split.
    """
    if selection.num_tasks is not None and selection.num_tasks < 1:
        raise InvalidOption(f"num_tasks is {selection.num_tasks}; it has to be at least 1")
    if not info.splits:
        samples = _without_tasks(info, selection)
    else:
        with place.control_sync() as control:
            samples = _with_tasks(info, selection, control)
    return MemoryDataset(samples, name=info.name)


def _without_tasks(info: EnvironmentInfo, selection: Selection) -> list[Sample]:
    if selection.split is not None:
        raise UnknownTask(f"environment {info.name!r} has no splits")
    count = selection.num_tasks or _DEFAULT_SAMPLES
    return [
        _sample(f"{position}", info.instructions, seed_of(selection.seed, position), str(position))
        for position in range(count)
    ]


def _with_tasks(info: EnvironmentInfo, selection: Selection, control: Client) -> list[Sample]:
    totals = {split.name: split.num_tasks for split in info.splits}
    split = selection.split or info.splits[0].name
    if split not in totals:
        raise UnknownTask(f"environment {info.name!r} has no split {split!r}; its splits are: {', '.join(totals)}")
    total = totals[split]
    count = selection.num_tasks if selection.num_tasks is not None else total
    if not total or (selection.num_tasks is None and total > _MOST_SAMPLES):
        raise InvalidOption(f"split {split!r} of {info.name!r} has {total} tasks: say how many to play (num_tasks)")
    tasks = _tasks(info.name, split, min(count, total), control)
    samples: list[Sample] = []
    for position in range(count):
        index, again = position % total, position // total
        task = tasks[index]
        key = f"{split}/{task.id}"
        sample = _sample(
            f"{key}#{again + 1}" if again else key,
            text_prompt(task, info.instructions),
            seed_of(selection.seed, position),
            key,
        )
        assert sample.metadata is not None
        sample.metadata |= {"split": split, "task_index": index}
        samples.append(sample)
    return samples


def _sample(identifier: str, prompt: str, seed: int, cluster: str) -> Sample:
    return Sample(id=identifier, input=prompt, metadata={CLUSTER: cluster, "seed": seed})


def _tasks(name: str, split: str, count: int, control: Client) -> list[Task]:
    tasks: list[Task] = []
    while len(tasks) < count:
        page = control.tasks(name, split=split, offset=len(tasks), limit=min(_PAGE, count - len(tasks)))
        if not page.tasks:
            raise UnknownTask(f"split {split!r} of {name!r} has {len(tasks)} tasks, fewer than announced")
        tasks += page.tasks
    return tasks
