"""An environment for clusters: hosts load this file by its path."""

from __future__ import annotations

import os
from typing import Any

from envport import Environment, Task, tool
from envport.environment import Progress
from envport.types import Trajectory


class FarEnvironment(Environment):
    """Counts, tells where it runs, and breaks when it is told to."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        self._count = 0
        return f"seed {seed}"

    @tool
    def count(self) -> str:
        """Count one further."""
        self._count += 1
        return str(self._count)

    def final_state(self) -> dict[str, int]:
        """For a function that scores from outside."""
        return {"count": self._count}

    @tool
    def where(self) -> dict[str, Any]:
        """Say which process this is, and which forked it."""
        with open(f"/proc/{os.getppid()}/stat", encoding="ascii") as stat:
            host = int(stat.read().rpartition(")")[2].split()[1])
        return {"pid": os.getpid(), "host": host}

    @tool
    def crash(self) -> str:
        """End the process."""
        os.abort()

    @tool
    def report(self, progress: Progress) -> str:
        """Report progress."""
        for done in range(3):
            progress(done, 3, f"part {done}")
        return "reported"


def steps_and_state(*, task: Task | None, trajectory: Trajectory, final_state: Any) -> float:
    """Score from outside: 10 for each step, and 1 for each count."""
    return 10.0 * len(trajectory.steps) + final_state["count"]
