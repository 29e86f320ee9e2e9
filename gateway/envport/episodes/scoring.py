"""Scores the final state of an episode: by its environment, or by a function from outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from envport.definition import EnvironmentDefinition
from envport.runtimes import SCORING, Worker, contained, overdue, reward_of
from envport.scoring import Scorer
from envport.types import Task, Trajectory

__all__ = ["score_final_state"]


async def score_final_state(
    spec: EnvironmentDefinition,
    worker: Worker,
    task: Task | None,
    trajectory: Callable[[], Awaitable[Trajectory]],
    seconds: float | None,
) -> float | None:
    """Score the final state of an episode.

    Args:
        spec: The environment.
        worker: What runs it.
        task: The task that was played.
        trajectory: Reads the trajectory.
        seconds: How long a function from outside may take; the worker knows the limit for the environment itself.

    Returns:
        The score; `None` if none was given.

    Raises:
        Exception: The environment or the function broke, or gave no finite number; see `Worker.score`.
    """
    if spec.scorer is None:
        return await worker.score()
    with contained():
        return await _score_outside(spec.scorer, worker, task, await trajectory(), seconds)


async def _score_outside(
    scorer: Scorer, worker: Worker, task: Task | None, trajectory: Trajectory, seconds: float | None
) -> float | None:
    state = await worker.final_state()
    with anyio.move_on_after(seconds):
        return reward_of(await scorer.score(task, trajectory, state))
    raise overdue(SCORING, seconds)
