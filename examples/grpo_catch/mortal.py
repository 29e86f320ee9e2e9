"""Catch in processes of which some are killed in the middle of a move: to see that a fault is never a lost game."""

from __future__ import annotations

import os
import random
import signal
from typing import Annotated, Any, Literal

from pydantic import Field

from envport import Step, Task, tool
from envport_envs.catch import CatchEnvironment


class MortalCatch(CatchEnvironment):
    """Catch the ball, unless the process is killed before.

    Args:
        mortality: Share of the episodes that are killed.
    """

    runtime = "process"

    def __init__(self, mortality: Annotated[float, Field(ge=0, le=1)] = 0.05):
        super().__init__(rows=5, columns=5, render="words")
        self._mortality = mortality

    def reset(self, *, seed: int, task: Task | None) -> Any:
        # Not by the seed: the episodes of a group have the same one, and each has its own luck.
        luck = random.SystemRandom()
        self._moves_left = luck.randrange(4) if luck.random() < self._mortality else None
        return super().reset(seed=seed, task=task)

    @tool(read_only=False, destructive=False, idempotent=False, open_world=False)
    def move(self, direction: Literal["left", "stay", "right"]) -> Step:
        """Move the paddle by one column, or leave it; the ball then falls by one row.

        Args:
            direction: Where to move the paddle. At the edge of the board it stays where it is.
        """
        if self._moves_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._moves_left is not None:
            self._moves_left -= 1
        return super().move(direction)
