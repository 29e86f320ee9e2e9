"""Scoring functions from outside an environment: a rubric, a reward library or a judge model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from envport.errors import ConfigurationError
from envport.modules import module_at
from envport.types import Task, Trajectory

__all__ = ["Scorer"]

_GIVEN = ("task", "trajectory", "final_state")


@dataclass(frozen=True)
class Scorer:
    """A function that scores the final state of episodes.

    It is called as `function(task=..., trajectory=..., final_state=...)`, with the `Task` or `None`, the `Trajectory`,
    and what the environment's `final_state` returned. It returns a finite number, or `None` for no score. It may be
    async; one that is not runs in a thread.

    Attributes:
        reference: `package.module:function`, or `/path/file.py:function`.
    """

    reference: str

    @classmethod
    def find(cls, reference: str) -> Scorer:
        """The scorer at a reference, checked.

        Raises:
            ConfigurationError: There is no such function, or it does not take what it is given.
        """
        where, _, name = reference.rpartition(":")
        if not where or not name:
            raise ConfigurationError(
                f"{reference!r} names no scoring function; it has to be package.module:function or "
                "./path/file.py:function"
            )
        # Another process, in another folder, has to find the same file.
        scorer = cls(f"{Path(where).resolve()}:{name}" if where.endswith(".py") else reference)
        try:
            inspect.signature(scorer.function).bind(**dict.fromkeys(_GIVEN))
        except TypeError as error:
            raise ConfigurationError(
                f"the scoring function {reference} is called with {', '.join(_GIVEN)} by name, and does not take "
                f"them: {error}"
            ) from None
        return scorer

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The function.

        Raises:
            ConfigurationError: There is none at the reference.
        """
        where, _, name = self.reference.rpartition(":")
        found = getattr(module_at(where), name, None)
        if not callable(found):
            raise ConfigurationError(f"there is no function {name!r} in {where}")
        return found

    async def score(self, task: Task | None, trajectory: Trajectory, final_state: Any) -> Any:
        """What the function gives for an episode, unchecked."""
        work = partial(self.function, task=task, trajectory=trajectory, final_state=final_state)
        if inspect.iscoroutinefunction(self.function):
            return await work()
        value = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        return await value if inspect.isawaitable(value) else value
