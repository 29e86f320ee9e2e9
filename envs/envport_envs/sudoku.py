"""Sudoku, in the usual size and in a small one."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Literal

from pydantic import Field

from envport import Environment, Step, Task, TaskSource, ToolError, tool
from envport.errors import InvalidOption
from envport.types import LegalCall
from envport_envs.lazy_tasks import LazyTasks, held_out

__all__ = ["SudokuEnvironment"]

_PROMPT = (
    "Solve the Sudoku. The board has {size} rows and {size} columns, divided into blocks of {block} by {block} "
    "cells. Fill the empty cells (.) with numbers from 1 to {size}, so that every row, every column and every block "
    "holds each number once. There is one solution. Call place to write a number into a cell, and clear to take one "
    "of yours back. A number that is in the row, the column or the block already is refused."
)
_PUZZLES = 10_000
_REPEATED = 20
_Cell = Annotated[int, Field(ge=1, le=9)]


class SudokuEnvironment(Environment):
    """Sudoku: fill the board so that every row, column and block holds each number once.

    Every puzzle has one solution. The rewards of an episode add up to the share of the empty cells that hold the right
    number in the end: a right one gives its part, taking a right one back costs it, and a wrong one that breaks no rule
    gives nothing. The player is not told which is which. The episode terminates when the board is solved.

    A task is a puzzle by its number. Every fifth is held out of `train` and makes up `test`. Played without a task, the
    seed chooses the puzzle.

    Args:
        size: Rows and columns of the board.
        blanks: Empty cells; a puzzle has fewer if it would have several solutions otherwise.
    """

    deterministic = True
    runtime = "thread"
    max_steps = 300

    def __init__(self, size: Literal[4, 9] = 9, blanks: Annotated[int, Field(ge=1, le=55)] = 30):
        if size not in (4, 9):
            raise InvalidOption(f"sudoku: size is {size}; it has to be 4 or 9")
        if not 1 <= blanks <= 55:
            raise InvalidOption(f"sudoku: blanks is {blanks}; it has to be from 1 to 55")
        self._size = size
        self._blanks = blanks

    def splits(self) -> Mapping[str, TaskSource]:
        """Puzzles for training, and held-out puzzles for testing."""
        prompt = _PROMPT.format(size=self._size, block=math.isqrt(self._size))

        def make(number: int) -> Task:
            return Task(id=f"puzzle-{number}", prompt=prompt, metadata={"puzzle": number})

        return {
            split: LazyTasks([number for number in range(_PUZZLES) if held_out(number, split)], make)
            for split in ("train", "test")
        }

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Make the puzzle and show it."""
        number = task.metadata.get("puzzle") if task is not None else None
        if number is None:
            number = self.rng.randrange(_PUZZLES)
        if type(number) is not int or not 0 <= number < _PUZZLES:
            raise ToolError(f"the task's puzzle is {number!r}; it has to be a number from 0 to {_PUZZLES - 1}")
        self._solution, self._given = _puzzle(random.Random(number), self._size, self._blanks)
        self._board = dict(self._given)
        return self._text()

    @tool(read_only=False, destructive=False, idempotent=False, open_world=False)
    def place(self, row: _Cell, column: _Cell, number: _Cell) -> Step:
        """Write a number into an empty cell.

        Args:
            row: Row of the cell, from 1 at the top.
            column: Column of the cell, from 1 at the left.
            number: The number.
        """
        cell = self._cell(row, column)
        if cell in self._board:
            raise ToolError(f"The cell in row {row}, column {column} is not empty: it holds {self._board[cell]}.")
        if number > self._size:
            raise ToolError(f"The numbers go from 1 to {self._size}.")
        if number in (self._board.get(peer) for peer in _peers(cell, self._size)):
            raise ToolError(f"{number} is in the row, the column or the block of row {row}, column {column} already.")
        self._board[cell] = number
        solved = self._board == self._solution
        return Step(
            f"{self._text()}\nSolved!" if solved else self._text(), reward=self._worth(cell, number), terminated=solved
        )

    @tool(read_only=False, destructive=False, idempotent=False, open_world=False)
    def clear(self, row: _Cell, column: _Cell) -> Step:
        """Take back a number that was placed.

        Args:
            row: Row of the cell, from 1 at the top.
            column: Column of the cell, from 1 at the left.
        """
        cell = self._cell(row, column)
        if cell in self._given:
            raise ToolError(f"The number in row {row}, column {column} belongs to the puzzle.")
        if cell not in self._board:
            raise ToolError(f"The cell in row {row}, column {column} is empty.")
        return Step(self._text_without(cell), reward=-self._worth(cell, self._board.pop(cell)))

    def legal_calls(self) -> list[tuple[str, dict[str, int]]]:
        """Every number that fits into an empty cell, and every number that can be taken back."""
        calls: list[tuple[str, dict[str, int]]] = []
        for cell in range(self._size * self._size):
            place = {"row": cell // self._size + 1, "column": cell % self._size + 1}
            if cell not in self._board:
                taken = {self._board.get(peer) for peer in _peers(cell, self._size)}
                calls += [("place", {**place, "number": it}) for it in range(1, self._size + 1) if it not in taken]
            elif cell not in self._given:
                calls.append(("clear", place))
        return calls

    def cheats(self, task: Task | None) -> Mapping[str, Sequence[LegalCall]]:
        """Take the reward of one right number again and again."""
        if task is None:
            return {}
        solution, given = _puzzle(random.Random(task.metadata["puzzle"]), self._size, self._blanks)
        cell = min(solution.keys() - given.keys())
        where = {"row": cell // self._size + 1, "column": cell % self._size + 1}
        return {
            "one right number again and again": [
                ("place", {**where, "number": solution[cell]}),
                ("clear", where),
            ]
            * _REPEATED
        }

    def _worth(self, cell: int, number: int) -> float:
        return float(self._solution[cell] == number) / (len(self._solution) - len(self._given))

    def _cell(self, row: int, column: int) -> int:
        if max(row, column) > self._size:
            raise ToolError(f"The board has {self._size} rows and {self._size} columns.")
        return (row - 1) * self._size + column - 1

    def _text_without(self, cell: int) -> str:
        return self._text({place: number for place, number in self._board.items() if place != cell})

    def _text(self, board: Mapping[int, int] | None = None) -> str:
        board = self._board if board is None else board
        size, block = self._size, math.isqrt(self._size)
        lines: list[str] = []
        for row in range(size):
            cells = [str(board.get(row * size + column, ".")) for column in range(size)]
            lines.append(" | ".join(" ".join(cells[at : at + block]) for at in range(0, size, block)))
            if row % block == block - 1 and row < size - 1:
                lines.append("-+-".join("-" * (2 * block - 1) for _ in range(block)))
        return "\n".join(lines)


def _puzzle(rng: random.Random, size: int, blanks: int) -> tuple[dict[int, int], dict[int, int]]:
    """A solution and its given cells. The same state of the generator makes the same puzzle."""
    solution = next(_solutions({}, size, rng))
    given = dict(solution)
    for cell in rng.sample(range(size * size), size * size):
        if len(solution) - len(given) == blanks:
            break
        number = given.pop(cell)
        solutions = _solutions(given, size, None)
        next(solutions)
        if next(solutions, None) is not None:
            given[cell] = number
    return solution, given


def _solutions(board: Mapping[int, int], size: int, rng: random.Random | None) -> Iterator[dict[int, int]]:
    """Every way to fill a board. The most constrained cell comes first; a generator shuffles the numbers."""
    best: tuple[int, list[int]] | None = None
    for cell in range(size * size):
        if cell in board:
            continue
        taken = {board.get(peer) for peer in _peers(cell, size)}
        free = [number for number in range(1, size + 1) if number not in taken]
        if best is None or len(free) < len(best[1]):
            best = (cell, free)
        if len(free) <= 1:
            break
    if best is None:
        yield dict(sorted(board.items()))
        return
    cell, free = best
    if rng is not None:
        rng.shuffle(free)
    for number in free:
        yield from _solutions({**board, cell: number}, size, rng)


@cache
def _peers(cell: int, size: int) -> frozenset[int]:
    """The other cells in the row, column and block of a cell."""
    row, column, block = cell // size, cell % size, math.isqrt(size)

    def is_peer(other: int) -> bool:
        across, down = other % size, other // size
        return down == row or across == column or (down // block, across // block) == (row // block, column // block)

    return frozenset(other for other in range(size * size) if other != cell and is_peer(other))
