"""Rows of a dataset in NeMo Gym's form, each of which begins one episode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

from envport.blocks import joined, text_block
from envport.errors import ConfigurationError
from envport.tools.schema import fingerprint
from envport.types import Task
from envport_bridges.nemo_gym.messages import function_tools, input_content
from envport_bridges.rollouts import AsyncRollouts

__all__ = ["RowsWanted", "rows_of"]

_AT_A_TIME = 16


@dataclass(frozen=True)
class RowsWanted:
    """Which rows to make.

    Attributes:
        split: The split; the first one if not given.
        rows: How many, from the first task on; one for each task if not given.
        seed: Seed of the first row. The next one has the next seed.
        tools: Whether the rows carry the tools, for agents that do not play over MCP.
        on_loss: What `/verify` answers for an episode that is lost.
    """

    split: str | None = None
    rows: int | None = None
    seed: int = 0
    tools: bool = True
    on_loss: Literal["error", "mask"] = "error"


async def rows_of(rollouts: AsyncRollouts, wanted: RowsWanted) -> AsyncIterator[dict[str, Any]]:
    """Make rows, in order.

    Each episode is opened once, because its first observation is a part of what the model is told.

    Args:
        rollouts: The environment.
        wanted: Which rows.

    Raises:
        ConfigurationError: There is no such split, or it is not said how many rows.
        EnvportError: An episode cannot be opened.
    """
    split, count = _chosen(rollouts, wanted)
    for first in range(0, count, _AT_A_TIME):
        size = min(_AT_A_TIME, count - first)
        tasks: list[Task | None] = [None] * size
        if split is not None:
            tasks = [*(await rollouts.tasks(split, offset=first, limit=size)).tasks]
        rows = (_row(rollouts, wanted, split, first + place, task) for place, task in enumerate(tasks))
        for row in await asyncio.gather(*rows):
            yield row


def _chosen(rollouts: AsyncRollouts, wanted: RowsWanted) -> tuple[str | None, int]:
    """The split, and how many rows there will be."""
    name = rollouts.environment.name
    sizes = {split.name: split.num_tasks for split in rollouts.environment.splits}
    if wanted.split is not None and wanted.split not in sizes:
        known = ", ".join(map(repr, sizes)) or "none"
        raise ConfigurationError(f"environment {name!r} has no split {wanted.split!r}; its splits are: {known}")
    if not sizes:
        if wanted.rows is None:
            raise ConfigurationError(f"environment {name!r} has no tasks: say how many rows, with --rows")
        return None, wanted.rows
    split = wanted.split if wanted.split is not None else next(iter(sizes))
    return split, sizes[split] if wanted.rows is None else min(wanted.rows, sizes[split])


async def _row(
    rollouts: AsyncRollouts, wanted: RowsWanted, split: str | None, index: int, task: Task | None
) -> dict[str, Any]:
    chosen: dict[str, Any] = {"seed": wanted.seed + index}
    if split is not None:
        chosen |= {"split": split, "task": index}
    async with await rollouts.open(**chosen) as rollout:
        told = [text_block(rollout.prompt)] if rollout.prompt else []
        content = input_content(joined([*told, *rollout.observation.content]))
        tools = rollout.tools
    checked: dict[str, Any] = {"environment": rollouts.environment.name, **chosen, "fingerprint": fingerprint(tools)}
    if task is not None:
        checked["task_id"] = task.id
    if wanted.on_loss != "error":
        checked["on_loss"] = wanted.on_loss
    return {
        "responses_create_params": {
            "input": [{"role": "user", "content": content}],
            "tools": function_tools(tools) if wanted.tools else [],
        },
        "verifier_metadata": {"envport": checked},
    }
