"""Environments whose final state is scored, and functions that score it from outside."""

from __future__ import annotations

import os
import threading
from typing import Any, ClassVar, Literal

import anyio

from envport import Environment, Step, Task, tool
from envport.types import Trajectory

Ending = Literal["number", "none", "error", "nan", "text", "exit", "hang"]

LET_GO = threading.Event()
"""Ends what hangs in this process: a thread that is left is waited for when the process ends."""


class Judged(Environment):
    """A counter that is judged by where it is left: 10 for each point, beside 1 for each call."""

    max_steps = 4
    score_seconds = 0.5

    def __init__(self, score: Ending = "number"):
        self._how = score

    def splits(self) -> dict[str, list[dict[str, Any]]]:
        return {"train": [{"id": f"t{i}", "prompt": f"Count to {i}."} for i in range(4)]}

    def reset(self, *, seed: int, task: Task | None) -> str:
        self._count = 0
        return "at 0"

    @tool
    def count(self) -> Step:
        """Count."""
        self._count += 1
        return Step(f"at {self._count}", reward=1.0)

    @tool
    def stop(self, how: Literal["terminated", "truncated"]) -> Step:
        """Stop."""
        return Step("stopped", terminated=how == "terminated", truncated=how == "truncated")

    @tool
    def crash(self) -> str:
        """Break."""
        raise RuntimeError("inside")

    def score(self) -> Any:
        match self._how:
            case "number":
                return 10 * self._count
            case "error":
                raise RuntimeError("the judge is out")
            case "nan":
                return float("nan")
            case "text":
                return "much"
            case "exit":
                os._exit(7)
            case "hang":
                LET_GO.wait(60)
            case "none":
                pass
        return None

    def final_state(self) -> Any:
        if self._how == "error":
            raise RuntimeError("the witness is out")
        return {"count": self._count}


class JudgedByLast(Judged):
    """The same, whose reward is the last one."""

    reward = "last"


class SlowlyJudged(Judged):
    """The same, whose score waits until a test lets it go."""

    score_seconds = 60.0
    asked: ClassVar[int] = 0
    gates: ClassVar[list[anyio.Event]] = []

    async def score(self) -> float:
        type(self).asked += 1
        gate = anyio.Event()
        self.gates.append(gate)
        await gate.wait()
        return 10.0 * self._count


class Unjudged(Environment):
    """Has no score of its own."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "begun"

    @tool
    def step(self) -> Step:
        """Take a step worth 1."""
        return Step("stepped", reward=1.0)


async def by_rubric(*, task: Task | None, trajectory: Trajectory, final_state: Any) -> float:
    """Half a point for each call that was recorded, 100 for the state."""
    assert trajectory.episode.outcome is not None
    assert task == trajectory.episode.task
    return 100.0 * (final_state or {}).get("count", 0) + len(trajectory.steps) / 2


def blocking(trajectory: Trajectory, **others: Any) -> float:
    """Scores in a thread: how the episode ended."""
    assert threading.current_thread() is not threading.main_thread()
    assert trajectory.episode.outcome is not None
    return {"finished": 7.0}.get(trajectory.episode.outcome.reason, 0.0)


def overdue(task: Any, trajectory: Any, final_state: Any) -> float:
    """Never answers."""
    LET_GO.wait(60)
    return 1.0


def broken(task: Any, trajectory: Any, final_state: Any) -> float:
    """Breaks."""
    raise ValueError("no rubric")


def takes_too_little(task: Any) -> float:
    """Does not take what it is given."""
    return 1.0
