"""The tasks: numbers of exercises, by kind, the easier ones first."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

from envport import Task, TaskSource, ToolError
from envport_envs.lazy_tasks import LazyTasks, held_out
from envport_envs.workspace.exercise import Exercise
from envport_envs.workspace.functions import function_exercise
from envport_envs.workspace.pipelines import pipeline_exercise
from envport_envs.workspace.repairs import repair_exercise

__all__ = ["KINDS", "NUMBERS", "exercise_of", "level_of", "splits"]

KINDS: dict[str, Callable[[Random, int], Exercise]] = {
    "function": function_exercise,
    "repair": repair_exercise,
    "pipeline": pipeline_exercise,
}
"""What makes an exercise of a kind from a generator and a level."""

NUMBERS = 240
"""Exercises of each kind."""

_LEVELS = 6


def level_of(number: int) -> int:
    """The level of an exercise, from 1 to 6."""
    return 1 + number * _LEVELS // NUMBERS


def exercise_of(metadata: Any) -> Exercise:
    """The exercise of a task: the same in every process.

    Args:
        metadata: The task's metadata.

    Raises:
        ToolError: It names no exercise.
    """
    kind, number = metadata.get("kind"), metadata.get("number")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ToolError(f"the task's kind is {kind!r}; allowed: {', '.join(KINDS)}")
    if type(number) is not int or not 0 <= number < NUMBERS:
        raise ToolError(f"the task's number is {number!r}; it has to be a whole number from 0 to {NUMBERS - 1}")
    return _exercise(kind, number)


@lru_cache(maxsize=64)
def _exercise(kind: str, number: int) -> Exercise:
    return KINDS[kind](Random(f"{kind} {number}"), level_of(number))


def splits() -> dict[str, TaskSource]:
    """A split for each kind, and `test` with every fifth exercise of all kinds."""
    chosen = {kind: [(kind, number) for number in range(NUMBERS) if held_out(number, "train")] for kind in KINDS}
    test = [(kind, number) for number in range(NUMBERS) for kind in KINDS if held_out(number, "test")]
    return {name: LazyTasks(items, _task) for name, items in {**chosen, "test": test}.items()}


def _task(item: tuple[str, int]) -> Task:
    kind, number = item
    metadata = {"kind": kind, "number": number, "level": level_of(number)}
    return Task(id=f"{kind}-{number}", prompt=exercise_of(metadata).prompt, metadata=metadata)
