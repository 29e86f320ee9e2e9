"""Write a program that passes hidden tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from envport import Environment, PlayerRun, Step, Task, TaskSource, ToolError, tool

__all__ = ["MyWorkspaceEnvironment"]

_PROGRAM = "solution.py"
_TESTS = 4


@dataclass(frozen=True)
class _Exercise:
    """A program to write.

    Attributes:
        what: What the program has to print.
        solve: What it prints, for the numbers that it reads.
        split: The split of its task.
    """

    what: str
    solve: Callable[[list[int]], int]
    split: str = "train"


_EXERCISES = {
    "sum": _Exercise("their sum", sum),
    "largest": _Exercise("the largest", max),
    "even": _Exercise("how many are even", lambda numbers: sum(not number % 2 for number in numbers)),
    "range": _Exercise("the largest less the smallest", lambda numbers: max(numbers) - min(numbers), "test"),
}


class MyWorkspaceEnvironment(Environment):
    """Write a Python program in a working folder, try it, and submit it.

    The reward is 1 if the program passes all hidden tests, else 0. The seed draws the tests. The program runs in a
    sandbox: it reaches neither the tests nor the reward.
    """

    runtime = "process"
    runs_player_code = True
    max_steps = 50
    call_seconds = 60

    def splits(self) -> Mapping[str, TaskSource]:
        """One task for each exercise."""
        tasks = {name: Task(id=name, prompt=_prompt(exercise)) for name, exercise in _EXERCISES.items()}
        return {
            split: [tasks[name] for name, exercise in _EXERCISES.items() if exercise.split == split]
            for split in ("train", "test")
        }

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Make an empty working folder, and draw the tests."""
        if task is None or task.id not in _EXERCISES:
            raise ToolError(f"there is no such task; there are: {', '.join(_EXERCISES)}")
        self._exercise = _EXERCISES[task.id]
        self._tests = [_numbers(self.rng) for _ in range(_TESTS)]
        self._workspace = self.player_code.workspace()
        return f"The working folder is empty. Write {_PROGRAM}."

    @tool
    def write(self, path: str, content: str) -> str:
        """Write a file into the working folder.

        Args:
            path: Path of the file in the working folder.
            content: All of its text.
        """
        self._workspace.write({path: content})
        return f"Wrote {path}."

    @tool
    def run(self, stdin: str = "") -> str:
        """Run the program.

        Args:
            stdin: What it reads.
        """
        return str(self._workspace.run(["python3", _PROGRAM], stdin=stdin, timeout=10))

    @tool
    def submit(self) -> Step[str]:
        """Submit the program and end."""
        return Step("Submitted.", terminated=True)

    def legal_calls(self) -> list[tuple[str, dict[str, Any]]]:
        """Some calls that make sense, for the checker and for playing at random."""
        return [("write", {"path": _PROGRAM, "content": "print(1)\n"}), ("run", {"stdin": "1 2 3"}), ("submit", {})]

    def score(self) -> float:
        """1 if the program passes all hidden tests, else 0."""
        try:
            program = self._workspace.read(_PROGRAM)
        except ToolError:
            return 0.0
        # A new workspace for each test: what the player left in its own could change the result.
        return float(all(self._passes(program, numbers) for numbers in self._tests))

    def _passes(self, program: bytes, numbers: list[int]) -> bool:
        done: PlayerRun = self.player_code.run(
            ["python3", _PROGRAM], files={_PROGRAM: program}, stdin=" ".join(map(str, numbers)), timeout=10
        )
        return done.ok and done.stdout.strip() == str(self._exercise.solve(numbers))


def _numbers(rng: random.Random) -> list[int]:
    return [rng.randint(-100, 100) for _ in range(rng.randint(3, 8))]


def _prompt(exercise: _Exercise) -> str:
    return (
        f"Write a Python program, {_PROGRAM}. It reads whole numbers from standard input, with spaces between them, "
        f"and prints {exercise.what}. Try it with run, then call submit: hidden tests decide."
    )
