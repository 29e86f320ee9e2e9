"""Maze: one way between any two cells, moves by the walls, and a reward for whoever is out in time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opening import open_episode

from envport import Task
from envport.episodes import Episode, Episodes
from envport.errors import InvalidOption, InvalidRequest
from envport.registry import load
from envport_envs.maze import MazeEnvironment

STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
SMALL = "maze?rows=3&columns=3&spare=0"


@asynccontextmanager
async def table(reference: str = SMALL) -> AsyncIterator[Episodes]:
    episodes = Episodes({"maze": load(reference)})
    async with episodes.run():
        yield episodes


async def opened(episodes: Episodes, **wanted: Any) -> Episode:
    return await open_episode(episodes, "maze", **wanted)


def seen(text: str) -> tuple[list[str], int]:
    """The map and the moves that are left."""
    *lines, moves = text.splitlines()
    return lines, int(moves.split()[0])


def walls(text: str) -> str:
    """The map without the start and the exit."""
    return "\n".join(seen(text)[0]).replace("@", ".").replace("E", ".")


def paths(lines: list[str]) -> Iterator[list[str]]:
    """Every path to the exit that uses no cell twice."""
    places = {sign: (row, line.index(sign)) for row, line in enumerate(lines) for sign in "@E" if sign in line}

    def search(row: int, column: int, been: list[tuple[int, int]], path: list[str]) -> Iterator[list[str]]:
        if (row, column) == places["E"]:
            yield path
            return
        for direction, (down, right) in STEPS.items():
            there = (row + 2 * down, column + 2 * right)
            if lines[row + down][column + right] != "#" and there not in been:
                yield from search(*there, [*been, there], [*path, direction])

    return search(*places["@"], [places["@"]], [])


@pytest.mark.parametrize(
    ("reference", "rows", "columns"), [(SMALL, 3, 3), ("maze", 5, 5), ("maze?rows=4&columns=9&spare=2", 4, 9)]
)
async def test_there_is_one_path_and_it_is_long_enough(reference: str, rows: int, columns: int):
    spare = {SMALL: 0, "maze": 4}.get(reference, 2)
    async with table(reference) as episodes:
        for task in range(6):
            lines, moves = seen((await opened(episodes, task=task)).first_observation.text)
            assert [len(line) for line in lines] == [2 * columns + 1] * (2 * rows + 1)
            assert sum(line.count(".") for line in lines) + 2 == 2 * rows * columns - 1
            (path,) = paths(lines)
            assert len(path) >= max(rows, columns)
            assert moves == len(path) + spare


async def test_the_shortest_path_wins_with_the_last_move():
    async with table() as episodes:
        for task in range(6):
            episode = await opened(episodes, task=task)
            (path,) = paths(seen(episode.first_observation.text)[0])
            for direction in path[:-1]:
                result = await episode.call("move", {"direction": direction})
                assert (result.reward, result.terminated) == (0.0, False)
            result = await episode.call("move", {"direction": path[-1]})
            assert (result.reward, result.terminated) == (1.0, True)
            assert result.observation.text == "You are out of the maze!"


async def test_a_wall_costs_a_move_and_the_last_one_ends_the_game():
    async with table() as episodes:
        episode = await opened(episodes, task=0)
        lines, moves = seen(episode.first_observation.text)
        ((row, column),) = ((row, line.index("@")) for row, line in enumerate(lines) if "@" in line)
        blocked = next(name for name, (down, right) in STEPS.items() if lines[row + down][column + right] == "#")
        for left in range(moves - 1, 0, -1):
            result = await episode.call("move", {"direction": blocked})
            text = result.observation.text
            assert text.startswith("There is a wall.\n")
            assert seen(text.removeprefix("There is a wall.\n")) == (lines, left)
        result = await episode.call("move", {"direction": blocked})
        assert result.observation.text.endswith("0 moves left.\nThe game is over.")
        assert (result.reward, result.terminated) == (0.0, True)


async def test_in_words_ways_are_marked_and_the_most_used_is_named_first():
    """Whoever takes new ways first, and then the least used one, gets out of every maze."""
    async with table("maze?rows=4&columns=4&spare=60&render=words") as episodes:
        for task in range(8):
            episode = await opened(episodes, task=task)
            text = episode.first_observation.text
            assert "New ways: " in text
            assert "Used ways: " not in text
            while episode.status == "running":
                # New ways are named after used ones.
                last = text.rpartition(" ways: ")[2].removesuffix(".").split(", ")[-1]
                result = await episode.call("move", {"direction": last})
                text = result.observation.text
                assert "wall" not in text
            assert episode.reward == 1.0


async def test_in_words_the_exit_is_where_it_is_on_the_map():
    async with table() as maps, table(f"{SMALL}&render=words") as said:
        for task in range(6):
            lines, moves = seen((await opened(maps, task=task)).first_observation.text)
            text = (await opened(said, task=task)).first_observation.text
            (row, column), (exit_row, exit_column) = (
                next((row, line.index(sign)) for row, line in enumerate(lines) if sign in line) for sign in "@E"
            )
            down, right = (exit_row - row) // 2, (exit_column - column) // 2
            assert (f"{abs(down)} {'down' if down > 0 else 'up'}" in text) == bool(down)
            assert (f"{abs(right)} {'right' if right > 0 else 'left'}" in text) == bool(right)
            assert text.startswith(f"{moves} moves left. ")


async def test_splits_share_no_walls():
    async with table() as episodes:
        layouts: dict[str, set[str]] = {}
        for split in ("train", "test"):
            starts = [await opened(episodes, split=split, task=task) for task in range(60)]
            layouts[split] = {walls(episode.first_observation.text) for episode in starts}
        assert len(layouts["train"]) > 30
        assert len(layouts["test"]) > 15
        assert not layouts["train"] & layouts["test"]


async def test_a_seed_chooses_the_maze_without_a_task():
    async with table() as episodes:
        starts = [(await opened(episodes, seed=seed)).first_observation.text for seed in (1, 1, 2)]
        assert starts[0] == starts[1] != starts[2]


@pytest.mark.parametrize("number", [-1, 10_000, "one", True])
async def test_a_task_that_is_no_maze_is_refused(number: Any):
    async with table() as episodes:
        with pytest.raises(InvalidRequest, match="it has to be a number from 0 to 9999"):
            await opened(episodes, task=Task(id="own", metadata={"maze": number}))


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("rows=2", "rows"),
        ("columns=21", "columns"),
        ("spare=-1", "spare"),
        ("render=image", "render"),
    ],
)
def test_options_out_of_range_are_refused(query: str, complaint: str):
    with pytest.raises(InvalidOption, match=complaint):
        load(f"maze?{query}")


@pytest.mark.parametrize("options", [{"rows": 2}, {"spare": 501}, {"render": "image"}])
def test_a_wrong_option_in_code_is_refused_too(options: dict[str, Any]):
    with pytest.raises(InvalidOption, match="it has to be"):
        MazeEnvironment(**options)
