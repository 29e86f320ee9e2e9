"""Games of TextArena by `textarena:ID`: each kind of move is a tool, and games go as in TextArena's engine."""

from __future__ import annotations

import random
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import permutations, product
from typing import Any

import anyio
import pytest

pytest.importorskip("textarena", reason="the extra textarena is not installed")

from opening import close_episode, open_episode

from envport.checker import check_environment
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


@pytest.mark.parametrize("game", [*GAMES, *ACTING, "Othello-v0-tiny?seat=1", "KuhnPoker-v0?seat=1&error_allowance=0"])
def test_it_passes_the_checker_without_a_warning(game: str) -> None:
    report = check_environment(f"textarena:{game}", seeds=range(2), steps=12)
    assert [finding for finding in report.findings if finding.check != "runtime"] == []


@pytest.mark.slow
@pytest.mark.parametrize("game", ["RushHour-v0", "Sokoban-v0", "WordLadder-v0"])
def test_it_passes_the_checker_where_a_reset_takes_long(game: str) -> None:
    report = check_environment(f"textarena:{game}", seeds=range(2), steps=12)
    assert [finding for finding in report.findings if finding.check != "runtime"] == []


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
