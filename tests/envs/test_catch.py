"""Catch has the board, the moves and the rewards of the literature."""

from __future__ import annotations

import base64
import io
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Literal

import pytest
from opening import open_episode

from envport import Task
from envport.episodes import Episode, Episodes
from envport.errors import InvalidArguments, InvalidOption, InvalidRequest, MissingExtra
from envport.registry import EnvironmentDefinition, load
from envport_envs.catch import CatchEnvironment


@asynccontextmanager
async def table(reference: str = "catch") -> AsyncIterator[Episodes]:
    episodes = Episodes({"catch": load(reference)})
    async with episodes.run():
        yield episodes


async def opened(episodes: Episodes, **wanted: Any) -> Episode:
    return await open_episode(episodes, "catch", **wanted)


def columns(text: str) -> tuple[int, int]:
    """Where the ball and the paddle are, read off the board as a player would."""
    rows = [row.split(" ") for row in text.splitlines()[1:]]
    found = {cell: row.index(cell) for row in rows for cell in "o=*" if cell in row}
    return found.get("o", found.get("*", -1)), found.get("=", found.get("*", -1))


def towards(text: str) -> Literal["left", "stay", "right"]:
    ball, paddle = columns(text)
    return "left" if ball < paddle else "right" if ball > paddle else "stay"


async def test_the_board_of_the_literature() -> None:
    async with table() as episodes:
        episode = await opened(episodes, task=Task(id="own"), seed=5)
        text = episode.first_observation.text
        board = text.splitlines()[1:]
        assert [len(row.split(" ")) for row in board] == [5] * 10
        assert "o" in board[0]
        assert board[9] == ". . = . ."
        assert "9 moves until the ball lands" in text


async def test_the_ball_falls_one_row_a_move_and_the_episode_ends_at_the_bottom() -> None:
    async with table() as episodes:
        episode = await opened(episodes, seed=0)
        rewards: list[float | None] = []
        for move in range(1, 10):
            assert episode.live
            result = await episode.call("move", {"direction": "stay"})
            rewards.append(result.reward)
            rows = [number for number, row in enumerate(result.observation.text.splitlines()[1:]) if "o" in row]
            assert rows in ([move], [])
        assert episode.status == "terminated"
        assert rewards[:-1] == [0.0] * 8
        assert rewards[-1] in (1.0, -1.0)


@pytest.mark.parametrize("split", ["train", "test"])
async def test_the_optimal_policy_catches_every_ball(split: str) -> None:
    async with table() as episodes:
        for index in range(episodes.environment("catch").num_tasks(split)):
            episode = await opened(episodes, split=split, task=index, seed=index)
            text = episode.first_observation.text
            while episode.live:
                text = (await episode.call("move", {"direction": towards(text)})).observation.text
            assert episode.reward == 1.0
            assert "Caught! The game is over." in text


async def test_moving_away_misses() -> None:
    async with table() as episodes:
        episode = await opened(episodes, task=Task(id="own", metadata={"ball": 0}))
        while episode.live:
            text = (await episode.call("move", {"direction": "right"})).observation.text
        assert episode.reward == -1.0
        assert "Missed. The game is over." in text
        assert columns(text) == (0, 4)


async def test_a_random_policy_does_worse_than_the_optimal_one() -> None:
    rng = Random(0)
    async with table() as episodes:
        rewards: list[float] = []
        for seed in range(200):
            episode = await opened(episodes, task=Task(id="own"), seed=seed)
            while episode.live:
                await episode.call("move", {"direction": rng.choice(["left", "stay", "right"])})
            assert episode.reward is not None
            rewards.append(episode.reward)
    # Wherever the paddle ends up, it is under one ball of five.
    assert -0.8 < sum(rewards) / 200 < -0.4


async def test_the_seed_chooses_the_column_where_the_task_does_not() -> None:
    async with table() as episodes:
        seen = {
            seed: {(await opened(episodes, task=Task(id="own"), seed=seed)).first_observation.text for _ in range(3)}
            for seed in range(30)
        }
        assert all(len(boards) == 1 for boards in seen.values())
        assert {columns(boards.pop())[0] for boards in seen.values()} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(("rows", "columns"), [(10, 5), (2, 2), (3, 9), (100, 100)])
def test_splits_hold_every_start_that_can_be_caught_once(rows: int, columns: int) -> None:
    splits = CatchEnvironment(rows, columns).splits()
    starts = {
        name: {(task.metadata["ball"], task.metadata["paddle"]) for task in source} for name, source in splits.items()
    }  # type: ignore[union-attr]
    assert not starts["train"] & starts["test"]
    assert starts["train"] | starts["test"] == {
        (ball, paddle) for ball in range(columns) for paddle in range(columns) if abs(ball - paddle) < rows
    }
    assert all(starts.values())
    assert len(starts["train"]) == len(splits["train"])
    assert splits["train"][-1] == splits["train"][len(splits["train"]) - 1]
    assert list(splits["train"][0:2]) == [splits["train"][0], splits["train"][1]]


async def test_options_change_the_board() -> None:
    async with table("catch?rows=3&columns=7") as episodes:
        episode = await opened(episodes, task=Task(id="own"))
        assert [len(row.split(" ")) for row in episode.first_observation.text.splitlines()[1:]] == [7] * 3
        for _ in range(2):
            await episode.call("move", {"direction": "stay"})
        assert episode.status == "terminated"
        assert "3 rows and 7 columns" in (await opened(episodes, task=0)).prompt


@pytest.mark.parametrize(
    ("ball", "moves", "seen"),
    [
        (
            0,
            ["left"],
            ["The ball is 2 to the left; 2 moves until the ball lands.", "is 1 to the left; 1 move"],
        ),
        (2, ["stay", "stay"], ["The ball is straight above; 2 moves", "straight above; 1 move", "landed. Caught!"]),
        (
            3,
            ["stay", "left"],
            ["The ball is 1 to the right;", "1 to the right;", "The ball has landed. Missed."],
        ),
    ],
)
async def test_the_board_in_words(ball: int, moves: list[str], seen: list[str]) -> None:
    async with table("catch?rows=3&columns=5&render=words") as episodes:
        episode = await opened(episodes, task=Task(id="own", metadata={"ball": ball}))
        said = [episode.first_observation.text]
        said += [(await episode.call("move", {"direction": move})).observation.text for move in moves]
        assert all(part in text for part, text in zip(seen, said, strict=True)), said


@pytest.mark.parametrize("render", ["image", "both"])
async def test_the_board_as_an_image(render: str) -> None:
    pillow = pytest.importorskip("PIL.Image")
    async with table(f"catch?render={render}") as episodes:
        episode = await opened(episodes, task=Task(id="own", metadata={"ball": 4}))
        kinds = [block["type"] for block in episode.first_observation.content]
        assert kinds == (["image"] if render == "image" else ["text", "image"])
        image = pillow.open(io.BytesIO(base64.b64decode(episode.first_observation.content[-1]["data"])))
        cell = image.width // 5
        assert image.size == (5 * cell, 10 * cell)
        centre = {
            (x, y): image.getpixel((x * cell + cell // 2, y * cell + cell // 2)) for x in range(5) for y in range(10)
        }
        background = centre[0, 0]
        assert {place for place, colour in centre.items() if colour != background} == {(4, 0), (2, 9)}
        assert centre[4, 0] != centre[2, 9]


def test_without_pillow_images_say_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    CatchEnvironment()
    with pytest.raises(MissingExtra, match=r"pip install 'envport\[images\]'"):
        CatchEnvironment(render="image")


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("rows=1", "'rows' is '1'; it has to be an integer at least 2, at most 100"),
        ("rows=101", "'rows' is '101'; it has to be an integer at least 2, at most 100"),
        ("columns=1", "'columns'"),
        ("rows=ten", "'rows' is 'ten'; it has to be an integer at least 2"),
        ("render=video", '\'render\' is \'video\'; it has to be one of "text", "words", "image", "both"'),
        ("size=3", "no option 'size'; its options are: rows"),
    ],
)
def test_wrong_options_are_said_plainly(query: str, complaint: str) -> None:
    with pytest.raises(InvalidOption, match=complaint):
        load(f"catch?{query}")


def test_a_wrong_option_in_code_is_refused_too() -> None:
    with pytest.raises(InvalidOption, match="rows is 1; it has to be from 2 to 100"):
        _ = EnvironmentDefinition("catch", CatchEnvironment, {"rows": 1}).prototype


@pytest.mark.parametrize("direction", ["up", "Left", "", None, 1, ["left"]])
async def test_no_other_direction_gets_through(direction: Any) -> None:
    async with table() as episodes:
        episode = await opened(episodes)
        with pytest.raises(InvalidArguments, match='it has to be one of "left", "stay", "right"'):
            await episode.call("move", {"direction": direction})
        assert episode.info().steps == 0


@pytest.mark.parametrize("metadata", [{"ball": 5}, {"paddle": -1}, {"ball": "left"}, {"ball": True}])
async def test_a_task_that_is_not_on_the_board_is_not_played(metadata: dict[str, Any]) -> None:
    async with table() as episodes:
        with pytest.raises(InvalidRequest, match="it has to be a column from 0 to 4"):
            await opened(episodes, task=Task(id="own", metadata=metadata))
