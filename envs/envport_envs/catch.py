"""Catch: a ball falls and a paddle catches it. A very small game that shows whether an agent learns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from pydantic import Field

from envport import Environment, Step, Task, TaskSource, ToolError, tool
from envport.errors import InvalidOption, MissingExtra
from envport_envs.lazy_tasks import LazyTasks, held_out

__all__ = ["CatchEnvironment"]

_PROMPT = (
    "Catch the ball. The board has {rows} rows and {columns} columns. The ball (o) falls straight down, one "
    "row per move. Your paddle (=) is in the bottom row. Each call of move shifts the paddle by one column, or "
    "leaves it, and lets the ball fall by one row. When the ball reaches the bottom row the game is over: +1 "
    "if the paddle is under it, -1 if not."
)
_SHIFT = {"left": -1, "stay": 0, "right": 1}
_CELL = 24
_LONGEST_SIDE = 480
_COLOURS = {".": (24, 24, 32), "o": (240, 200, 60), "=": (90, 160, 250), "*": (90, 220, 120)}


class CatchEnvironment(Environment):
    """Catch the ball: it falls one row per move, and your paddle has to be under it when it lands.

    The board, the moves and the rewards are those of bsuite's Catch (Osband et al., "Behaviour Suite for
    Reinforcement Learning", arXiv:1908.03568, `bsuite/environments/catch.py`), which OpenSpiel's `catch`
    shares: 10 rows and 5 columns, the ball starts in the top row and the paddle in the bottom row, a move
    shifts the paddle by at most one column and drops the ball by one row, the reward is 0 until the ball is in
    the bottom row, and then +1 if it was caught and -1 if not.

    A task is a start: a column for the ball and one for the paddle, near enough to be caught. Every fifth
    start is held out of `train` and makes up `test`. Played without a task, the game starts as in the
    literature: the paddle in the middle, the ball in a column that the seed chooses.

    Args:
        rows: Rows of the board, 2 to 100. An episode takes one move less.
        columns: Columns of the board, 2 to 100.
        render: Show the board as text, as an image, or as both; or say in words where the ball is, as seen from
            the paddle, which even the smallest model can learn from. Images need the extra `images`.
    """

    deterministic = True
    reward_ceiling = 1.0
    stalling = "as in the literature, a game that is not played to its end earns 0: count it as lost where that matters"

    def __init__(
        self,
        rows: Annotated[int, Field(ge=2, le=100)] = 10,
        columns: Annotated[int, Field(ge=2, le=100)] = 5,
        render: Literal["text", "words", "image", "both"] = "text",
    ):
        for option, value in (("rows", rows), ("columns", columns)):
            if not 2 <= value <= 100:
                raise InvalidOption(f"catch: {option} is {value}; it has to be from 2 to 100")
        if render in ("image", "both") and find_spec("PIL") is None:
            raise MissingExtra("Rendering catch as an image", "images")
        self._rows = rows
        self._columns = columns
        self._render = render

    def splits(self) -> Mapping[str, TaskSource]:
        """Starts for training, and held-out starts for testing."""
        prompt = _PROMPT.format(rows=self._rows, columns=self._columns)

        def make(start: tuple[int, int]) -> Task:
            ball, paddle = start
            name = f"ball-{ball + 1}-paddle-{paddle + 1}"
            return Task(id=name, prompt=prompt, metadata={"ball": ball, "paddle": paddle})

        starts = [(ball, paddle) for paddle in range(self._columns) for ball in range(self._columns)]
        near = [(ball, paddle) for ball, paddle in starts if abs(ball - paddle) < self._rows]
        return {
            split: LazyTasks([start for start in near if held_out(start[0] + 2 * start[1], split)], make)
            for split in ("train", "test")
        }

    def reset(self, *, seed: int, task: Task | None) -> Any:
        """Put the ball into the top row and show the board."""
        start = task.metadata if task is not None else {}
        self._ball_row = 0
        self._ball = _column(start, "ball", self._columns, self.rng.randrange(self._columns))
        self._paddle = _column(start, "paddle", self._columns, self._columns // 2)
        return self._board()

    def snapshot(self) -> bytes:
        """Where the ball and the paddle are."""
        return json.dumps([self._ball_row, self._ball, self._paddle]).encode()

    def restore(self, snapshot: bytes) -> None:
        """Put the ball and the paddle there."""
        self._ball_row, self._ball, self._paddle = json.loads(snapshot)

    @tool(read_only=False, destructive=False, idempotent=False, open_world=False)
    def move(self, direction: Literal["left", "stay", "right"]) -> Step:
        """Move the paddle by one column, or leave it; the ball then falls by one row.

        Args:
            direction: Where to move the paddle. At the edge of the board it stays where it is.
        """
        self._paddle = min(max(self._paddle + _SHIFT[direction], 0), self._columns - 1)
        self._ball_row += 1
        if self._ball_row < self._rows - 1:
            return Step(self._board(), reward=0.0)
        return Step(self._board(), reward=1.0 if self._ball == self._paddle else -1.0, terminated=True)

    def _board(self) -> Any:
        match self._render:
            case "text":
                return self._text()
            case "words":
                return self._words()
            case "image":
                return self._image()
            case _:
                return [self._text(), self._image()]

    def _text(self) -> str:
        where = f"Ball in column {self._ball + 1}, paddle in column {self._paddle + 1} of {self._columns}"
        return "\n".join([self._head(where), *(" ".join(row) for row in self._cells())])

    def _words(self) -> str:
        away = self._ball - self._paddle
        side = f"{abs(away)} to the {'left' if away < 0 else 'right'}" if away else "straight above"
        return self._head(f"The ball is {side}" if self._ball_row < self._rows - 1 else "The ball has landed")

    def _head(self, where: str) -> str:
        left = self._rows - 1 - self._ball_row
        if left:
            return f"{where}; {left} move{'s' if left > 1 else ''} until the ball lands."
        return f"{where}. {'Caught!' if self._ball == self._paddle else 'Missed.'} The game is over."

    def _cells(self) -> list[list[str]]:
        cells = [["."] * self._columns for _ in range(self._rows)]
        cells[self._ball_row][self._ball] = "o"
        bottom = cells[self._rows - 1]
        bottom[self._paddle] = "*" if bottom[self._paddle] == "o" else "="
        return cells

    def _image(self) -> Any:
        pixels: Any = import_module("PIL.Image")
        small = pixels.new("RGB", (self._columns, self._rows))
        small.putdata([_COLOURS[cell] for row in self._cells() for cell in row])
        cell = max(4, min(_CELL, _LONGEST_SIDE // max(self._rows, self._columns)))
        return small.resize((self._columns * cell, self._rows * cell), pixels.Resampling.NEAREST)


def _column(start: Mapping[str, Any], name: str, columns: int, default: int) -> int:
    column = start.get(name, default)
    if type(column) is not int or not 0 <= column < columns:
        raise ToolError(f"the task's {name} is {column!r}; it has to be a column from 0 to {columns - 1}")
    return column
