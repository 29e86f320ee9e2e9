"""Games of TextArena by `textarena:ID`: tools, rewards, bad input, and episodes side by side."""

from __future__ import annotations

import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import anyio
import pytest

pytest.importorskip("textarena", reason="the extra textarena is not installed")

from opening import open_episode

from envport.episodes import Episode, Episodes
from envport.errors import (
    ConfigurationError,
    EnvironmentNotFound,
    EpisodeFailed,
    InvalidArguments,
    InvalidOption,
    MissingExtra,
)
from envport.registry import load
from envport_envs.textarena.contests import CONTESTS
from envport_envs.textarena.puzzles import PUZZLES


@asynccontextmanager
async def table(game: str, **settings: Any) -> AsyncIterator[Episodes]:
    episodes = Episodes({"it": load(f"textarena:{game}", "it")}, **settings)
    async with episodes.run():
        yield episodes


async def opened(episodes: Episodes, seed: int = 0) -> Episode:
    return await open_episode(episodes, "it", seed=seed)


SOLUTION = [
    ("move", {"source": source, "target": target}) for source, target in ("AC", "AB", "CB", "AC", "BA", "BC", "AC")
]


@pytest.mark.parametrize("game", ["TowerOfHanoi-v0", "TowerOfHanoi-v0?error_allowance=0&max_steps=7"])
async def test_a_solution_earns_one(game: str) -> None:
    async with table(game) as episodes:
        episode = await opened(episodes)
        # The rules that TextArena tells are of moves in brackets.
        assert episode.first_observation.text.startswith("Current Board: \nA: [3, 2, 1]\n")
        assert "[" not in episode.prompt
        for tool, arguments in SOLUTION:
            result = await episode.call(tool, arguments)
        assert (result.terminated, episode.reward) == (True, 1.0)
        assert "Congratulations" in result.observation.text


async def test_a_game_without_typed_moves_is_played_in_its_own_notation() -> None:
    async with table("Secretary-v0") as episodes:
        rewards: list[float | None] = []
        for seed in range(12):
            episode = await opened(episodes, seed)
            assert "type [accept] to pick" in episode.first_observation.text
            seen = episode.first_observation.text
            while episode.live:
                good = float(seen.rpartition("value is ")[2].rstrip(".")) > 0.7
                seen = (await episode.call("act", {"text": "[accept]" if good else "[continue]"})).observation.text
            rewards.append(episode.reward)
        assert set(rewards) == {0.0, 1.0}


# What TextArena gives for the start of these games is above 0: two invalid moves would earn it.
@pytest.mark.parametrize(
    ("game", "tool", "arguments"),
    [
        ("PegJump-v0", "act", {"text": "no move"}),
        ("RushHour-v0", "act", {"text": "no move"}),
        ("Crosswords-v0", "act", {"text": "no move"}),
        ("TowerOfHanoi-v0", "move", {"source": "B", "target": "C"}),
    ],
)
async def test_doing_nothing_earns_nothing(game: str, tool: str, arguments: dict[str, Any]) -> None:
    async with table(game) as episodes:
        for seed in range(3):
            episode = await opened(episodes, seed)
            assert (await episode.call(tool, arguments)).is_error
            assert (await episode.call(tool, arguments)).terminated
            assert episode.reward == 0.0


async def test_invalid_moves_in_a_row_end_the_game_and_tell_what_is_allowed() -> None:
    wrong = ("move", {"source": "B", "target": "C"})
    async with table("TowerOfHanoi-v0?error_allowance=2") as episodes:
        episode = await opened(episodes)
        assert episode.prompt.endswith("3 invalid moves in a row end the game.")
        for _ in range(2):
            for _ in range(2):
                refused = await episode.call(*wrong)
                assert refused.is_error
                assert "from an empty tower" in refused.observation.text
                assert "Allowed now: move(source='A', target='B'), move(" in refused.observation.text
            await episode.call("move", {"source": "A", "target": "B"})
            await episode.call("move", {"source": "B", "target": "A"})
        results = [await episode.call(*wrong) for _ in range(3)]
        assert [result.terminated for result in results] == [False, False, True]
        assert (episode.reward, results[-1].is_error) == (0.0, False)
    async with table("Nim-v0?error_allowance=0") as episodes:
        episode = await opened(episodes)
        assert episode.prompt.endswith("An invalid move ends the game.")
        assert (await episode.call("take", {"pile": 0, "count": 5})).terminated
        assert episode.reward == -1.0


async def test_moves_that_are_many_are_not_listed() -> None:
    async with table("Wordle-v0") as episodes:
        refused = await (await opened(episodes)).call("guess", {"word": "xxxxx"})
        assert refused.is_error
        assert "not an English word" in refused.observation.text
        assert "Allowed" not in refused.observation.text


async def test_a_whole_number_may_be_written_with_a_point() -> None:
    async with table("ConnectFour-v0") as episodes:
        assert not (await (await opened(episodes)).call("drop", {"column": 3.0})).is_error
    async with table("Mastermind-v0") as episodes:
        assert not (await (await opened(episodes)).call("guess", {"code": [1.0, 2.0, 3, 4]})).is_error


async def test_no_reward_is_below_minus_one() -> None:
    async with table("LightsOut-v0") as episodes:
        rewards: list[float] = []
        for seed in range(20):
            episode = await opened(episodes, seed)
            for row, column in product(range(0, 5, 2), range(5)):
                await episode.call("press", {"row": row, "column": column})
            for column in range(5):
                await episode.call("press", {"row": 1, "column": column})
            rewards.append(episode.reward or 0.0)
        assert min(rewards) == -1.0


async def test_only_the_last_board_is_shown() -> None:
    async with table("ConnectFour-v0") as episodes:
        text = (await (await opened(episodes)).call("drop", {"column": 3})).observation.text
        assert text.count("Board state") == 1
        assert text.count("X") - text.count("(X)") == text.count("O") - text.count("(O)") == 1
        assert "[col" not in text


async def test_what_is_told_of_legal_moves_does_not_tell_where_the_mines_are() -> None:
    async with table("Minesweeper-v0-small?error_allowance=100") as episodes:
        episode = await opened(episodes)
        for _ in range(2):
            for row, column in product(range(5), range(5)):
                result = await episode.call("reveal", {"row": row, "column": column})
                assert "Allowed" not in result.observation.text
                if result.terminated:
                    return
        pytest.fail("the mines can be revealed")


@pytest.mark.parametrize(
    ("game", "tool", "arguments", "complaint"),
    [
        ("TowerOfHanoi-v0", "move", {"source": "D", "target": "A"}, '\'source\'.* "A", "B", "C"'),
        ("TowerOfHanoi-v0", "move", {"source": "A"}, "'target'"),
        ("TowerOfHanoi-v0", "move", {"source": "A", "target": "B", "more": 1}, "more"),
        ("ConnectFour-v0", "drop", {"column": 7}, "'column'.* 6"),
        ("ConnectFour-v0", "drop", {"column": -1}, "'column'.* 0"),
        ("ConnectFour-v0", "drop", {"column": "3"}, "'column'.*integer"),
        ("ConnectFour-v0", "drop", {"column": 10**400}, "'column'.* 6"),
        ("ConnectFour-v0", "drop", {"column": None}, "'column'.*integer"),
        ("Wordle-v0", "guess", {"word": "four"}, "'word'"),
        ("Wordle-v0", "guess", {"word": "[abc]"}, "'word'"),
        ("Hangman-v0", "guess_letter", {"letter": "ab"}, "'letter'"),
        ("Hangman-v0", "guess_word", {"word": "a" * 100_000}, "'word'"),
        ("Mastermind-v0", "guess", {"code": [1, 2, 3]}, "'code'"),
        ("Mastermind-v0", "guess", {"code": [1, 2, 3, 7]}, "code"),
        ("Mastermind-v0", "guess", {"code": "1 2 3 4"}, "'code'"),
        ("2048-v0", "slide", {"direction": "UP"}, "'direction'.*\"up\""),
        ("Secretary-v0", "act", {"text": "x" * 1001}, "'text'"),
        ("Secretary-v0", "act", {"text": ""}, "'text'"),
        ("Secretary-v0", "act", {"text": 5}, "'text'"),
    ],
)
async def test_what_is_no_move_never_reaches_the_game(
    game: str, tool: str, arguments: dict[str, Any], complaint: str
) -> None:
    async with table(f"{game}?error_allowance=0") as episodes:
        episode = await opened(episodes)
        with pytest.raises(InvalidArguments, match=complaint) as caught:
            await episode.call(tool, arguments)
        assert len(str(caught.value)) < 500
        assert episode.live


async def test_an_engine_that_raises_is_a_fault_and_no_other_episode_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any) -> bool:
        raise RuntimeError("broken")

    async with table("Nim-v0") as episodes:
        one, other = await opened(episodes, 1), await opened(episodes, 1)
        state = random.getstate()
        with monkeypatch.context() as patch:
            patch.setattr("textarena.envs.Nim.env.NimEnv._check_game_over", broken)
            with pytest.raises(EpisodeFailed):
                await one.call("take", {"pile": 0, "count": 1})
        assert (one.status, one.reward) == ("failed", None)
        assert random.getstate() == state
        assert not (await other.call("take", {"pile": 0, "count": 1})).is_error


async def test_episodes_side_by_side_are_what_each_is_alone() -> None:
    async def play(episodes: Episodes, name: str, seed: int, log: list[str]) -> None:
        episode = await open_episode(episodes, name, seed=seed)
        log.append(episode.first_observation.text)
        calls = [("hit", {}), ("stand", {})] if name == "cards" else [("roll", {}), ("roll", {}), ("hold", {})]
        for number in range(30):
            if episode.live:
                log.append((await episode.call(*calls[number % len(calls)])).observation.text)

    names = {"cards": "textarena:Blackjack-v0", "dice": "textarena:PigDice-v0-short?seat=1"}
    episodes = Episodes({name: load(reference, name) for name, reference in names.items()})
    games = [(name, seed) for name in names for seed in (0, 1, 2, 2**63 - 1, 2)]
    async with episodes.run():
        random.seed(5)
        before = random.getstate()
        alone: list[list[str]] = [[] for _ in games]
        together: list[list[str]] = [[] for _ in games]
        for (name, seed), log in zip(games, alone, strict=True):
            await play(episodes, name, seed, log)
        async with anyio.create_task_group() as tasks:
            for (name, seed), log in zip(games, together, strict=True):
                tasks.start_soon(play, episodes, name, seed, log)
        assert together == alone
        assert alone[2] == alone[4]
        assert len({tuple(log) for log in alone}) == 8
        assert random.getstate() == before


async def test_a_choice_of_the_other_player_is_not_shown_before_the_own_one() -> None:
    async with table("IteratedRockPaperScissors-v0?seat=1") as episodes:
        seen = {(await opened(episodes, seed)).first_observation.text for seed in range(12)}
        assert len(seen) == 1
    async with table("KuhnPoker-v0") as episodes:
        for seed in range(12):
            assert (await opened(episodes, seed)).first_observation.text.count("Your card is: ") == 1


async def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    for game in ("RushHour-v0", "LogicPuzzle-v0", "WordSearch-v0"):
        async with table(game) as episodes:
            episode = await opened(episodes)
            await episode.call("act", {"text": "[A+]"})
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("game", "steps"),
    [("TowerOfHanoi-v0", 28), ("Hangman-v0", 200), ("2048-v0", 5000), ("Nim-v0?max_steps=3", 3)],
)
def test_every_game_has_a_limit_of_calls(game: str, steps: int) -> None:
    assert load(f"textarena:{game}").prototype.max_steps == steps


async def test_nobody_is_told_to_walk_off_the_lake() -> None:
    async with table("FrozenLake-v0") as episodes:
        episode = await opened(episodes)
        corners = [(("down", "right"), "right", 3), (("down", "left"), "left", 3), (("down", "right"), "down", 3)]
        for ways, way, cells in corners:
            assert await episode.legal_calls() == [("walk", {"direction": one}) for one in ways]
            for _ in range(cells):
                await episode.call("walk", {"direction": way})
        assert await episode.legal_calls() == [("walk", {"direction": one}) for one in ("up", "right")]


@pytest.mark.parametrize("game", [*CONTESTS, *PUZZLES])
def test_every_game_with_typed_moves_tells_its_rules(game: str) -> None:
    prompt = load(f"textarena:{game.removeprefix('Game') if game == 'Game2048' else game}-v0").prompt(None)
    assert len(prompt.split()) > 8
    assert "None" not in prompt


@pytest.mark.parametrize(
    ("reference", "error", "complaint"),
    [
        ("textarena:wordle", EnvironmentNotFound, "no game 'wordle'. Near: Wordle-v0"),
        ("textarena:TicTacToe-v0-raw", EnvironmentNotFound, "Near: TicTacToe-v0"),
        ("textarena:xyzzy", EnvironmentNotFound, "Its games are: 2048-v0, .*TowerOfHanoi-v0"),
        ("textarena:Nim-v0?seat=2", InvalidOption, "no seat 2; its seats are 0 to 1"),
        ("textarena:Wordle-v0?seat=1", InvalidOption, "no seat 1; its seats are 0 to 0"),
        ("textarena:Nim-v0?error_allowance=-1", InvalidOption, "'error_allowance' is '-1'"),
        ("textarena:Nim-v0?max_steps=0", InvalidOption, "'max_steps' is '0'"),
        ("textarena:Nim-v0?opponent=me", InvalidOption, "no option 'opponent'; its options are: seat"),
        ("textarena:DontSayIt-v0", ConfigurationError, "nobody to play against. Games for two .* ConnectFour-v0, Game"),
        ("textarena:SecretMafia-v0", ConfigurationError, "is for several players"),
        ("textarena:UsedCar-v0-balanced", ConfigurationError, "cannot be made: ModuleNotFoundError: .*UsedCar"),
        ("textarena:Set-v0", ConfigurationError, "counts the same card three times"),
        ("textarena:Bandit-v0", ConfigurationError, "the worse the wrong button"),
        ("textarena:Slitherlink-v0", ConfigurationError, "in the wrong order"),
    ],
)
def test_each_mistake_in_a_reference_is_named(reference: str, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint) as caught:
        load(reference)
    assert type(caught.value) is error


def test_without_the_extra_one_is_told_which_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [name for name in sys.modules if name.startswith("envport_envs.textarena")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(MissingExtra, match=r"References with textarena: .* pip install 'envport\[textarena\]'"):
        load("textarena:Nim-v0")
