"""A maze: find the way to the exit, in as few moves as the plan is good."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from envport import Environment, Step, Task, TaskSource, ToolError, tool
from envport.errors import InvalidOption
from envport_envs.lazy_tasks import LazyTasks, held_out

__all__ = ["MazeEnvironment"]

_PROMPT = (
    "Find the way out of the maze. It has {rows} rows and {columns} columns of cells. Between any two cells there is "
    "one way and no other. Each call of move takes you into the next cell in a direction; where there is a wall you "
    "stay where you are, and the move is spent all the same. {view} You win if you reach the exit before your moves "
    "are spent."
)
_VIEWS = {
    "text": "On the map, # is a wall, @ is you and E is the exit.",
    "words": "Ways that you used are marked with chalk; the most used is named first.",
}
_MAZES = 10_000
_STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}

_Cell = tuple[int, int]
_Way = frozenset[_Cell]


@dataclass(frozen=True)
class _Maze:
    """Where the ways are, where the player starts, where the exit is, and how many moves the shortest path has."""

    ways: frozenset[_Way]
    start: _Cell
    exit: _Cell
    shortest: int


class MazeEnvironment(Environment):
    """Maze: reach the exit before the moves are spent, for a reward of 1.

    A maze is a spanning tree of the grid, made by a random walk that turns back in dead ends (depth-first search). The
    exit is at least as far from the start as the longer side of the grid. The moves are those of the shortest path,
    and `spare` more.

    A task is a maze by its number. Every fifth is held out of `train` and makes up `test`. The splits share no walls:
    which of them a layout belongs to follows from the layout, and a number takes the first one of its split. Played
    without a task, the seed chooses the maze.

    Args:
        rows: Rows of cells.
        columns: Columns of cells.
        spare: Moves beyond those of the shortest path. With 0, only the shortest path wins.
        render: Show the whole maze as a map (`text`), so that the path can be planned ahead; or say which ways lead out
            of the cell and where the exit is (`words`), so that the maze has to be explored. Ways are then marked each
            time they are used, as in Trémaux's method (Lucas, "Récréations mathématiques", 1882): whoever prefers new
            ways, and then the least used one, finds the exit.
    """

    deterministic = True
    max_steps = 1000

    def __init__(
        self,
        rows: Annotated[int, Field(ge=3, le=20)] = 5,
        columns: Annotated[int, Field(ge=3, le=20)] = 5,
        spare: Annotated[int, Field(ge=0, le=500)] = 4,
        render: Literal["text", "words"] = "text",
    ):
        for option, value, least, most in (
            ("rows", rows, 3, 20),
            ("columns", columns, 3, 20),
            ("spare", spare, 0, 500),
        ):
            if not least <= value <= most:
                raise InvalidOption(f"maze: {option} is {value}; it has to be from {least} to {most}")
        if render not in _VIEWS:
            raise InvalidOption(f"maze: render is {render!r}; it has to be 'text' or 'words'")
        self._rows = rows
        self._columns = columns
        self._spare = spare
        self._render = render

    def splits(self) -> Mapping[str, TaskSource]:
        """Mazes to train on, and mazes that are held out."""
        prompt = _PROMPT.format(rows=self._rows, columns=self._columns, view=_VIEWS[self._render])

        def make(number: int) -> Task:
            return Task(id=f"maze-{number}", prompt=prompt, metadata={"maze": number})

        return {
            split: LazyTasks([number for number in range(_MAZES) if held_out(number, split)], make)
            for split in ("train", "test")
        }

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Make the maze and show what can be seen from the start."""
        number = task.metadata.get("maze") if task is not None else None
        if number is None:
            number = self.rng.randrange(_MAZES)
        if type(number) is not int or not 0 <= number < _MAZES:
            raise ToolError(f"the task's maze is {number!r}; it has to be a number from 0 to {_MAZES - 1}")
        self._maze = _make(number, self._rows, self._columns)
        self._here = self._maze.start
        self._left = self._maze.shortest + self._spare
        self._marks: Counter[_Way] = Counter()
        return self._view()

    @tool(read_only=False, destructive=False, idempotent=False, open_world=False)
    def move(self, direction: Literal["up", "down", "left", "right"]) -> Step:
        """Go to the next cell in a direction.

        Args:
            direction: Where to go. Where there is a wall you stay where you are.
        """
        self._left -= 1
        there = _next(self._here, direction)
        way = frozenset((self._here, there))
        blocked = way not in self._maze.ways
        if not blocked:
            self._marks[way] += 1
            self._here = there
        if self._here == self._maze.exit:
            return Step("You are out of the maze!", reward=1.0, terminated=True)
        view = f"There is a wall.\n{self._view()}" if blocked else self._view()
        if self._left:
            return Step(view, reward=0.0)
        return Step(f"{view}\nThe game is over.", reward=0.0, terminated=True)

    def _view(self) -> str:
        moves = f"{self._left} move{'' if self._left == 1 else 's'} left."
        return f"{self._map()}\n{moves}" if self._render == "text" else f"{moves} {self._words()}"

    def _map(self) -> str:
        lines = [["#"] * (2 * self._columns + 1) for _ in range(2 * self._rows + 1)]
        for way in self._maze.ways:
            cells = list(way)
            # Cell (row, column) is drawn at (2 * row + 1, 2 * column + 1), and a way between its two cells.
            lines[1 + sum(row for row, _ in cells)][1 + sum(column for _, column in cells)] = "."
            for row, column in cells:
                lines[2 * row + 1][2 * column + 1] = "."
        for sign, (row, column) in (("E", self._maze.exit), ("@", self._here)):
            lines[2 * row + 1][2 * column + 1] = sign
        return "\n".join("".join(line) for line in lines)

    def _words(self) -> str:
        marks = {direction: self._marks[way] for direction, way in _around(self._here) if way in self._maze.ways}
        used = [direction for direction in sorted(marks, key=marks.__getitem__, reverse=True) if marks[direction]]
        new = [direction for direction in marks if not marks[direction]]
        ways = [f"{name} ways: {', '.join(found)}." for name, found in (("Used", used), ("New", new)) if found]
        down, right = self._maze.exit[0] - self._here[0], self._maze.exit[1] - self._here[1]
        parts = [f"{abs(down)} {'down' if down > 0 else 'up'}"] * bool(down)
        parts += [f"{abs(right)} {'right' if right > 0 else 'left'}"] * bool(right)
        return f"The exit is {' and '.join(parts)}. {' '.join(ways)}"


def _next(cell: _Cell, direction: str) -> _Cell:
    down, right = _STEPS[direction]
    return cell[0] + down, cell[1] + right


def _around(cell: _Cell) -> Iterable[tuple[str, _Way]]:
    for direction in _STEPS:
        yield direction, frozenset((cell, _next(cell, direction)))


def _make(number: int, rows: int, columns: int) -> _Maze:
    """The maze of a number: the same in every process, and with walls that no maze of the other split has."""
    rng = random.Random(number)
    while True:
        ways = _dig(rng, rows, columns)
        layout = sorted(sorted(way) for way in ways)
        if held_out(zlib.crc32(repr(layout).encode()), "test") == held_out(number, "test"):
            break
    far = max(rows, columns)
    while True:
        start = (rng.randrange(rows), rng.randrange(columns))
        distances = _distances(start, ways)
        # From a corner, the opposite one is always far enough.
        if exits := [cell for cell, distance in distances.items() if distance >= far]:
            way_out = rng.choice(exits)
            return _Maze(ways, start, way_out, distances[way_out])


def _dig(rng: random.Random, rows: int, columns: int) -> frozenset[_Way]:
    path = [(rng.randrange(rows), rng.randrange(columns))]
    seen = set(path)
    ways: set[_Way] = set()
    while path:
        around = [_next(path[-1], direction) for direction in _STEPS]
        free = [(row, column) for row, column in around if 0 <= row < rows and 0 <= column < columns]
        free = [cell for cell in free if cell not in seen]
        if not free:
            path.pop()
            continue
        cell = rng.choice(free)
        ways.add(frozenset((path[-1], cell)))
        seen.add(cell)
        path.append(cell)
    return frozenset(ways)


def _distances(start: _Cell, ways: frozenset[_Way]) -> dict[_Cell, int]:
    """How many moves each cell is away."""
    distances = {start: 0}
    queue = [start]
    for cell in queue:
        for direction in _STEPS:
            there = _next(cell, direction)
            if there not in distances and frozenset((cell, there)) in ways:
                distances[there] = distances[cell] + 1
                queue.append(there)
    return distances
