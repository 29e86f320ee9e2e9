"""A game of numbers: reach the target in a few moves."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Literal

from envport import Environment, Step, Task, TaskSource, ToolError, tool

__all__ = ["MyGameEnvironment"]

MoveName = Literal["add", "double", "triple"]

_LENGTH = 5
_PATHS: list[tuple[MoveName, ...]] = list(product(("add", "double", "triple"), repeat=_LENGTH))


class MyGameEnvironment(Environment):
    """Reach the target from a number, in five moves at most: add 3, double, or triple.

    The reward is 1 when the target is reached, else 0. A task is a path of moves that leads to its target, which the
    player does not see. The seed chooses the number to start from. Every fifth path is held out for testing.
    """

    max_steps = 20  # a move that is refused is a step too

    def splits(self) -> Mapping[str, TaskSource]:
        """Paths for training, and held-out paths for testing."""
        tasks = [Task(id=f"path-{number}", metadata={"moves": list(path)}) for number, path in enumerate(_PATHS)]
        return {
            "train": [task for number, task in enumerate(tasks) if number % 5],
            "test": tasks[::5],
        }

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Draw the number to start from, and take the path to find the target."""
        path = tuple(task.metadata.get("moves", ())) if task is not None else ()
        if path not in _PATHS:
            raise ToolError("the task has no path of moves: play one of the splits")
        self._number = self._target = self.rng.randint(2, 20)
        for move in path:
            self._target = _moved(self._target, move)
        self._left = _LENGTH
        return f"Reach {self._target} from {self._number} in {self._left} moves."

    @tool
    def move(self, kind: MoveName) -> Step[str]:
        """Change the number.

        Args:
            kind: `add` adds 3, `double` multiplies by 2, `triple` multiplies by 3.
        """
        after = _moved(self._number, kind)
        if after > self._target:
            raise ToolError(f"{after} is above the target {self._target}; the number stays {self._number}.")
        self._number, self._left = after, self._left - 1
        if self._number == self._target:
            return Step(f"You reached {self._target}.", reward=1.0, terminated=True)
        if self._left == 0 or not self.legal_calls():
            return Step(f"The number is {self._number}, and no move is left.", reward=0.0, terminated=True)
        return Step(f"The number is {self._number}; {self._left} moves are left.", reward=0.0)

    def legal_calls(self) -> list[tuple[str, dict[str, MoveName]]]:
        """The moves that do not pass the target."""
        kinds: tuple[MoveName, ...] = ("add", "double", "triple")
        return [("move", {"kind": kind}) for kind in kinds if _moved(self._number, kind) <= self._target]


def _moved(number: int, kind: MoveName) -> int:
    return {"add": number + 3, "double": number * 2, "triple": number * 3}[kind]
