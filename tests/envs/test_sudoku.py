"""Sudoku: puzzles with one solution, moves by the rules, and rewards that add up to what is right."""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opening import open_episode

from envport import Task
from envport.episodes import Episode, Episodes
from envport.errors import InvalidArguments, InvalidOption, InvalidRequest
from envport.registry import load

SMALL = "sudoku?size=4&blanks=8"


@asynccontextmanager
async def table(reference: str = SMALL) -> AsyncIterator[Episodes]:
    episodes = Episodes({"sudoku": load(reference)})
    async with episodes.run():
        yield episodes


async def opened(episodes: Episodes, **wanted: Any) -> Episode:
    return await open_episode(episodes, "sudoku", **wanted)


def board(text: str) -> dict[tuple[int, int], int]:
    """The numbers on a board, by row and column from 1."""
    rows = [line.replace("| ", "").split(" ") for line in text.splitlines() if not line.startswith("-")]
    return {
        (row, column): int(cell)
        for row, cells in enumerate(rows, 1)
        for column, cell in enumerate(cells, 1)
        if cell.isdigit()
    }


def solutions(given: dict[tuple[int, int], int], size: int) -> list[dict[tuple[int, int], int]]:
    """Every way to fill a board, by trying: at most two."""
    block = math.isqrt(size)
    cells = list(itertools.product(range(1, size + 1), repeat=2))
    found: list[dict[tuple[int, int], int]] = []

    def free(filled: dict[tuple[int, int], int], row: int, column: int) -> set[int]:
        taken = {
            number
            for (other_row, other_column), number in filled.items()
            if row == other_row
            or column == other_column
            or ((row - 1) // block, (column - 1) // block) == ((other_row - 1) // block, (other_column - 1) // block)
        }
        return set(range(1, size + 1)) - taken

    def fill(filled: dict[tuple[int, int], int]) -> None:
        empty = [cell for cell in cells if cell not in filled]
        if not empty:
            found.append(filled)
        if not empty or len(found) > 1:
            return
        cell = min(empty, key=lambda one: len(free(filled, *one)))
        for number in free(filled, *cell):
            fill({**filled, cell: number})

    fill(given)
    return found


@pytest.mark.parametrize(
    ("reference", "size", "blanks"), [(SMALL, 4, 8), ("sudoku", 9, 30), ("sudoku?blanks=50", 9, 50)]
)
async def test_puzzles_have_one_solution(reference: str, size: int, blanks: int):
    async with table(reference) as episodes:
        seen = set()
        for task in range(4):
            given = board((await opened(episodes, task=task)).first_observation.text)
            assert len(given) == size * size - blanks
            assert len(solutions(given, size)) == 1
            seen.add(str(given))
        assert len(seen) == 4


async def test_the_solution_ends_the_episode_with_a_reward_of_one():
    async with table() as episodes:
        episode = await opened(episodes, task=3)
        given = board(episode.first_observation.text)
        (solution,) = solutions(given, 4)
        missing = [cell for cell in solution if cell not in given]
        for row, column in missing:
            assert episode.status == "running"
            result = await episode.call("place", {"row": row, "column": column, "number": solution[row, column]})
            assert result.reward == pytest.approx(1 / len(missing))
        assert board(result.observation.text.removesuffix("\nSolved!")) == solution
        assert (episode.status, result.terminated) == ("terminated", True)
        assert episode.reward == pytest.approx(1.0)


async def test_what_is_taken_back_is_worth_what_it_was():
    async with table() as episodes:
        episode = await opened(episodes, task=0)
        given = board(episode.first_observation.text)
        (solution,) = solutions(given, 4)
        row, column = next(cell for cell in solution if cell not in given)
        cell = {"row": row, "column": column}
        placed = await episode.call("place", {**cell, "number": solution[row, column]})
        assert board(placed.observation.text) == {**given, (row, column): solution[row, column]}
        cleared = await episode.call("clear", cell)
        assert board(cleared.observation.text) == given
        assert (placed.reward, cleared.reward) == (1 / 8, -1 / 8)
        wrong = [
            (cell, number)
            for cell in solution
            if cell not in given
            for number in range(1, 5)
            if number != solution[cell] and not (await tried(episode, cell, number)).is_error
        ]
        assert wrong, "no wrong number keeps the rules on this board"
        assert episode.reward == pytest.approx(0.0)


async def tried(episode: Episode, cell: tuple[int, int], number: int) -> Any:
    """Place a number, and take it back."""
    row, column = cell
    result = await episode.call("place", {"row": row, "column": column, "number": number})
    if not result.is_error:
        assert result.reward == 0.0
        await episode.call("clear", {"row": row, "column": column})
    return result


async def test_one_right_number_again_and_again_earns_nothing():
    spec = load(SMALL)
    (calls,) = spec.prototype.cheats(spec.task("train", 3)).values()
    async with table() as episodes:
        episode = await opened(episodes, split="train", task=3)
        rewards = [(await episode.call(tool, arguments)).reward for tool, arguments in calls]
        assert rewards == [1 / 8, -1 / 8] * (len(calls) // 2)
        assert (await episodes.finish(episode.handle, episode.principal)).reward == 0.0


async def test_moves_against_the_rules_are_refused_and_change_nothing():
    async with table() as episodes:
        episode = await opened(episodes, task=1)
        given = board(episode.first_observation.text)
        full, empty = (
            next(iter(given)),
            next(cell for cell in itertools.product(range(1, 5), repeat=2) if cell not in given),
        )
        in_row = next(number for (row, _), number in given.items() if row == empty[0])
        for tool, arguments, complaint in [
            ("place", {"row": full[0], "column": full[1], "number": 1}, "is not empty: it holds"),
            ("place", {"row": empty[0], "column": empty[1], "number": in_row}, "in the row, the column or the block"),
            ("place", {"row": empty[0], "column": empty[1], "number": 9}, "numbers go from 1 to 4"),
            ("place", {"row": 9, "column": 1, "number": 1}, "has 4 rows and 4 columns"),
            ("clear", {"row": full[0], "column": full[1]}, "belongs to the puzzle"),
            ("clear", {"row": empty[0], "column": empty[1]}, "is empty"),
        ]:
            result = await episode.call(tool, arguments)
            assert result.is_error
            assert complaint in result.observation.text
        with pytest.raises(InvalidArguments):
            await episode.call("place", {"row": 0, "column": 1, "number": 1})
        assert episode.reward is None


async def test_splits_share_no_puzzle():
    spec = load(SMALL)
    splits = spec.prototype.splits()
    train, test = ({task.id for task in splits[name]} for name in ("train", "test"))
    assert (len(train), len(test), train & test) == (8_000, 2_000, set())
    assert [task.id for task in splits["test"][1:3]] == ["puzzle-5", "puzzle-10"]


@pytest.mark.parametrize(
    ("query", "complaint"), [("size=5", "'size' is '5'"), ("blanks=0", "'blanks' is '0'"), ("blanks=56", "'blanks'")]
)
def test_wrong_options_are_said_plainly(query: str, complaint: str):
    with pytest.raises(InvalidOption, match=complaint):
        load(f"sudoku?{query}")


@pytest.mark.parametrize("puzzle", [-1, 10_000, "one", True])
async def test_a_task_that_names_no_puzzle_is_not_played(puzzle: Any):
    async with table() as episodes:
        with pytest.raises(InvalidRequest, match="has to be a number from 0 to 9999"):
            await opened(episodes, task=Task(id="own", metadata={"puzzle": puzzle}))
