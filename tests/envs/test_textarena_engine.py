"""Games of TextArena go as in TextArena's engine, and pass the checker."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import permutations, product
from typing import Any

import pytest

pytest.importorskip("textarena", reason="the extra textarena is not installed")

from opening import close_episode, open_episode
from slow import slow

from envport.checker import check_environment
from envport.episodes import Episode, Episodes
from envport.registry import load
from envport_envs.textarena.words import without_downloads

with without_downloads():
    raw_registry: Any = import_module("textarena.envs.registration")


@asynccontextmanager
async def table(game: str, **settings: Any) -> AsyncIterator[Episodes]:
    episodes = Episodes({"it": load(f"textarena:{game}", "it")}, **settings)
    async with episodes.run():
        yield episodes


async def opened(episodes: Episodes, seed: int = 0) -> Episode:
    return await open_episode(episodes, "it", seed=seed)


# A move: the tool, its arguments, and the text that TextArena reads. The lists are written from TextArena's rules.
Move = tuple[str, dict[str, Any], str]
Moves = Callable[[Any], list[Move]]


def cells(game: Any) -> list[int]:
    board = game.state.game_state["board"]
    return [cell for cell in range(9) if board[cell // 3][cell % 3] == ""]


def grid(tool: str, rows: int, columns: int) -> list[Move]:
    return [
        (tool, {"row": row, "column": column}, f"[{row} {column}]")
        for row, column in product(range(rows), range(columns))
    ]


def wordle(game: Any) -> list[Move]:
    words = [*game.word_list[:: len(game.word_list) // 8], game.state.game_state["secret_word"], "xxxxx"]
    return [("guess", {"word": word}, f"[{word}]") for word in words]


def sudoku(game: Any) -> list[Move]:
    found = []
    for row, column in product(range(9), range(9)):
        if game.state.game_state["board"][row][column] == 0:
            number = game.full_grid[row][column]
            place = {"row": row + 1, "column": column + 1, "number": number}
            found.append(("place", place, f"[{row + 1} {column + 1} {number}]"))
    row = found[0][1]["row"]
    return [*found, ("place", {"row": row, "column": 1, "number": 1}, f"[{row} 1 1]")]


def mastermind(game: Any) -> list[Move]:
    numbers = range(1, game.num_numbers + 1)
    codes = [*permutations(numbers, game.code_length)][::37]
    codes += [(1,) * game.code_length, tuple(game.state.game_state["secret_code"])]
    return [("guess", {"code": [*code]}, f"[{' '.join(map(str, code))}]") for code in codes]


def hangman(game: Any) -> list[Move]:
    guessed = game.state.game_state["guessed_letters"]
    letters = [chr(it) for it in range(ord("A"), ord("Z") + 1) if chr(it) not in guessed]
    found: list[Move] = [("guess_letter", {"letter": letter}, f"[{letter}]") for letter in letters]
    word = game.state.game_state["target_word"]
    return [*found, ("guess_word", {"word": "wrong"}, "[wrong]"), ("guess_word", {"word": word}, f"[{word}]")]


def hanoi(game: Any) -> list[Move]:
    return [
        ("move", {"source": source, "target": target}, f"[{source} {target}]")
        for source, target in product("ABC", "ABC")
        if game.state.game_state["towers"][source]
    ]


def directions(tool: str) -> Moves:
    names = ("up", "down", "left", "right")
    return lambda game: [(tool, {"direction": name}, f"[{name}]") for name in names]


def plain(*names: str) -> Moves:
    return lambda game: [(name, {}, f"[{name}]") for name in names]


def of(tool: str, parameter: str, *values: str) -> Moves:
    return lambda game: [(tool, {parameter: value}, f"[{value}]") for value in values]


def kuhn(game: Any) -> list[Move]:
    return plain(*game.state.game_state["current_legal_action_tree"])(game)


def nim(game: Any) -> list[Move]:
    return [
        ("take", {"pile": pile, "count": count}, f"[{pile} {count}]")
        for pile, size in enumerate(game.state.game_state["piles"])
        for count in range(1, size + 1)
    ]


def othello(game: Any) -> list[Move]:
    valid = game.state.game_state["valid_moves"]
    placing = [("place", {"row": row, "column": column}, f"[{row}, {column}]") for row, column in valid]
    return placing or [("skip", {}, "[skip]")]


def gops(game: Any) -> list[Move]:
    names = {1: "A", 11: "J", 12: "Q", 13: "K"}
    hand = game.state.game_state["player_hands"][game.state.current_player_id]
    cards = [names.get(value, str(value)) for value in hand]
    return of("play", "card", *cards)(game)


def columns(game: Any) -> list[Move]:
    top = game.state.game_state["board"][0]
    return [("drop", {"column": it}, f"[col {it}]") for it, cell in enumerate(top) if cell == "."]


GAMES: dict[str, Moves] = {
    "Blackjack-v0": plain("hit", "stand"),
    "FrozenLake-v0": directions("walk"),
    "2048-v0-ultra-easy": directions("slide"),
    "GuessTheNumber-v0": lambda game: [("guess", {"number": it}, f"[{it}]") for it in range(1, 21)],
    "Hangman-v0": hangman,
    "LightsOut-v0": lambda game: grid("press", 5, 5),
    "Mastermind-v0": mastermind,
    "Minesweeper-v0": lambda game: grid("reveal", 8, 8),
    "Sudoku-v0-easy": sudoku,
    "TowerOfHanoi-v0": hanoi,
    "Wordle-v0": wordle,
    "ConnectFour-v0": columns,
    "GameOfPureStrategy-v0": gops,
    "IteratedMatchingPennies-v0": of("choose", "side", "heads", "tails"),
    "IteratedRockPaperScissors-v0": of("show", "hand", "rock", "paper", "scissors"),
    "KuhnPoker-v0": kuhn,
    "Nim-v0": nim,
    "Othello-v0-small": othello,
    "PigDice-v0-short": plain("roll", "hold"),
    "TicTacToe-v0": lambda game: [("place", {"cell": it}, f"[{it}]") for it in cells(game)],
    "WildTicTacToe-v0": lambda game: [
        ("place", {"mark": mark, "cell": it}, f"[{mark} {it}]") for it in cells(game) for mark in "XO"
    ],
}
ALONE = [*GAMES][:11]
SEATS = [(game, seat) for game in GAMES for seat in ((0,) if game in ALONE else (0, 1))]
LONG = 400


@dataclass
class Turn:
    """What TextArena's engine says to one move."""

    tool: str
    arguments: dict[str, Any]
    refused: bool = False
    done: bool = False
    told: list[str] = field(default_factory=list[str])


@dataclass
class Played:
    """A game in TextArena's engine."""

    first: list[str]
    turns: list[Turn]
    start: float
    reward: float | None


def told(game: Any, seat: int) -> list[str]:
    """What the engine has told a seat since the last time; of several boards, the last."""
    messages = game.state.observations[seat]
    game.state.observations[seat] = []
    boards = [text for _, text, kind in messages if kind.name == "GAME_BOARD"]
    others = [text for _, text, kind in messages if kind.name.startswith("GAME_") and kind.name != "GAME_BOARD"]
    return [text.strip() for text in [*others, *boards[-1:]]]


def raw_game(name: str, seat: int, seed: int, made: dict[str, Any]) -> Played:
    """Play a random game in the engine, in which some moves are made a second time."""
    with without_downloads():
        if name not in made or not name.startswith(("Wordle", "Hangman")):
            made[name] = raw_registry.make(f"{name}-raw")
    game, players = made[name], 1 if name in ALONE else 2
    random.seed(seed)
    game.reset(num_players=players, seed=seed)
    mine, theirs = random.Random(seed + 1), random.Random(seed)

    def others() -> None:
        while not game.state.done and game.state.current_player_id != seat:
            game.step(theirs.choice(GAMES[name](game))[2])

    percentage = getattr(game, "_get_percentage_completion", None)
    start = percentage() if percentage else 0.0
    others()
    played, moves = Played(told(game, seat), [], start, None), list[Move]()
    while not game.state.done and len(moves) < LONG:
        again = moves and mine.random() < 0.1
        move = mine.choice(moves if again else GAMES[name](game))
        moves.append(move)
        errors = game.state.error_count
        game.step(move[2])
        refused = not game.state.done and game.state.error_count > errors
        if not refused:
            others()
        played.turns.append(Turn(move[0], move[1], refused, game.state.done, told(game, seat)))
    if game.state.done:
        rewards, information = game.close()
        played.reward = rewards[seat]
        played.turns[-1].told.append(information[seat]["reason"])
    return played


def expected_reward(played: Played, alone: bool) -> float:
    """The reward of envport, as its page says."""
    assert played.reward is not None
    if not alone or played.reward < 0:
        return max(played.reward, -1.0)
    return max(0.0, (played.reward - played.start) / (1 - played.start))


async def compare(name: str, seat: int, seeds: range) -> None:
    made: dict[str, Any] = {}
    async with table(f"{name}?seat={seat}") as episodes:
        for seed in seeds:
            played = raw_game(name, seat, seed, made)
            episode = await opened(episodes, seed)
            assert all(text in episode.first_observation.text for text in played.first)
            for turn in played.turns:
                result = await episode.call(turn.tool, turn.arguments)
                assert (result.is_error, result.terminated) == (turn.refused, turn.done)
                missing = [text for text in turn.told if text not in result.observation.text]
                assert missing == []
                if not turn.done:
                    assert not result.reward
            if played.reward is not None:
                assert episode.reward == pytest.approx(expected_reward(played, name in ALONE))
            await close_episode(episodes, episode)


@pytest.mark.parametrize(("game", "seat"), SEATS)
async def test_random_games_go_as_in_the_engine(game: str, seat: int) -> None:
    await compare(game, seat, range(2))


@pytest.mark.slow
@pytest.mark.parametrize(("game", "seat"), SEATS)
async def test_two_hundred_random_games_go_as_in_the_engine(game: str, seat: int) -> None:
    await compare(game, seat, range(200))


ACTING = ["Crosswords-v0", "LogicPuzzle-v0", "PegJump-v0", "Secretary-v0", "WordSearch-v0"]


# Boards, cards, words and numbers, alone and against another player. `make test-slow` checks the others.
CHECKED = ["2048-v0-ultra-easy", "Hangman-v0", "Minesweeper-v0", "GameOfPureStrategy-v0", "PegJump-v0"]
CHECKED += ["WildTicTacToe-v0", "KuhnPoker-v0?seat=1&error_allowance=0"]
UNCHECKED = [game for game in (*GAMES, *ACTING, "Othello-v0-tiny?seat=1") if game not in CHECKED]


@pytest.mark.parametrize("game", [*CHECKED, *slow(UNCHECKED)])
def test_it_passes_the_checker_without_a_warning(game: str) -> None:
    report = check_environment(f"textarena:{game}", seeds=range(2), steps=12, another_process=False)
    assert [finding for finding in report.findings if finding.check != "runtime"] == []


@pytest.mark.slow
@pytest.mark.parametrize("game", ["RushHour-v0", "Sokoban-v0", "WordLadder-v0"])
def test_it_passes_the_checker_where_a_reset_takes_long(game: str) -> None:
    report = check_environment(f"textarena:{game}", seeds=range(2), steps=12, another_process=False)
    assert [finding for finding in report.findings if finding.check != "runtime"] == []
