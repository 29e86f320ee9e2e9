"""Games of OpenSpiel by `openspiel:GAME`: moves have names, and only legal ones reach the engine."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations
from random import Random
from typing import Any

import anyio
import pytest
from opening import open_episode
from slow import slow

from envport import ToolError
from envport.checker import check_environment
from envport.episodes import Episode, Episodes
from envport.errors import ConfigurationError, EnvironmentNotFound, InvalidArguments, InvalidOption, MissingExtra
from envport.registry import load

pyspiel: Any = pytest.importorskip("pyspiel", reason="the extra openspiel is not installed")


@asynccontextmanager
async def table(game: str, **settings: Any) -> AsyncIterator[Episodes]:
    episodes = Episodes({"it": load(f"openspiel:{game}", "it")}, **settings)
    async with episodes.run():
        yield episodes


async def opened(episodes: Episodes, seed: int = 0) -> Episode:
    return await open_episode(episodes, "it", seed=seed)


def offered(text: str) -> list[str]:
    """The legal moves that an observation lists."""
    *_, last = text.splitlines()
    return json.loads(f"[{last.removeprefix('Your legal moves: ').removesuffix('.')}]") if "moves" in last else []


GAMES = [
    "tic_tac_toe",
    "tic_tac_toe?seat=1",
    "connect_four",
    "blackjack",
    "kuhn_poker",
    "kuhn_poker(players=3)?seat=2",
    "leduc_poker",
    "2048",
    "hearts?seat=3",
    "goofspiel(num_cards=4)",
    "chess",
    "go(board_size=5)",
    "coin_game",
    "battleship",
]


@pytest.mark.parametrize("game", [*GAMES[::3], *slow(it for it in GAMES if it not in GAMES[::3])])
def test_it_passes_the_checker_without_a_warning(game: str) -> None:
    report = check_environment(f"openspiel:{game}", seeds=range(2), steps=12, another_process=False)
    assert [finding for finding in report.findings if finding.check != "runtime"] == []


@pytest.mark.parametrize(
    ("game", "games"),
    [
        ("tic_tac_toe", 50),
        ("tic_tac_toe?seat=1", 50),
        ("connect_four", 50),
        ("blackjack", 50),
        ("kuhn_poker", 50),
        ("leduc_poker?seat=1", 50),
        ("goofspiel(num_cards=4)", 50),
        ("2048", 3),
    ],
)
async def test_random_games_go_as_in_the_engine(game: str, games: int) -> None:
    text, _, seat = game.partition("?seat=")
    raw = pyspiel.load_game_as_turn_based(text)
    me = int(seat or 0)
    async with table(game) as episodes:
        for seed in range(games):
            player, rng = Random(seed + 1), Random(seed)
            state = dealt(raw, me, rng)
            episode = await opened(episodes, seed)
            seen = episode.first_observation.text
            for _ in range(120):
                assert seen.startswith(state.observation_string(me).rstrip())
                legal = {state.action_to_string(me, action): action for action in state.legal_actions()}
                assert offered(seen) == [*legal]
                move = player.choice([*legal])
                before = state.returns()[me]
                state.apply_action(legal[move])
                others(state, me, rng)
                result = await episode.call("move", {"move": move})
                assert (result.reward, result.terminated) == (state.returns()[me] - before, state.is_terminal())
                seen = result.observation.text
                if result.terminated:
                    assert seen.endswith("The game is over.")
                    assert episode.reward == pytest.approx(state.returns()[me])
                    break


def dealt(game: Any, seat: int, rng: Random) -> Any:
    while True:
        state = game.new_initial_state()
        others(state, seat, rng)
        if not state.is_terminal():
            return state


def others(state: Any, seat: int, rng: Random) -> None:
    """Chance and the other players, drawn by the episode's generator."""
    while not state.is_terminal() and state.current_player() != seat:
        if state.is_chance_node():
            actions, chances = zip(*state.chance_outcomes(), strict=True)
            state.apply_action(rng.choices(actions, chances)[0])
        else:
            state.apply_action(rng.choice(state.legal_actions()))


async def test_a_policy_that_reads_wins_at_tic_tac_toe() -> None:
    async with table("tic_tac_toe") as episodes:
        episode = await opened(episodes, 3)
        assert episode.prompt == (
            "Play Tic Tac Toe. You are player 0 of players 0 to 1. Call move with one of your legal moves."
        )
        seen = episode.first_observation.text
        while episode.live:
            board = [line for line in seen.splitlines() if len(line) == 3]
            best = max(offered(seen), key=lambda move: worth(board, int(move[2]), int(move[4])))
            seen = (await episode.call("move", {"move": best})).observation.text
        assert (episode.status, episode.reward) == ("terminated", 1.0)


def worth(board: list[str], row: int, column: int) -> int:
    """How good a cell is: it wins, it keeps the other from winning, or it is the middle."""
    lines = [[(row, it) for it in range(3)], [(it, column) for it in range(3)]]
    lines += [[(it, it) for it in range(3)]] if row == column else []
    lines += [[(it, 2 - it) for it in range(3)]] if row + column == 2 else []
    marks = ["".join(sorted(board[r][c] for r, c in line)) for line in lines]
    return 4 * (".xx" in marks) + 2 * (".oo" in marks) + (row == column == 1)


@pytest.mark.parametrize(
    ("game", "names"),
    [
        ("connect_four", ["x0", "x1", "x2", "x3", "x4", "x5", "x6"]),
        ("connect_four?seat=1", ["o0", "o1", "o2", "o3", "o4", "o5", "o6"]),
        ("blackjack", ["Hit", "Stand"]),
        ("kuhn_poker", ["Pass", "Bet"]),
        ("leduc_poker", ["Fold", "Call", "Raise"]),
        ("2048", ["Up", "Right", "Down", "Left"]),
    ],
)
def test_moves_that_are_few_are_named_in_the_schema(game: str, names: list[str]) -> None:
    assert load(f"openspiel:{game}").tools["move"].input_schema["properties"]["move"]["enum"] == names


def test_what_players_are_told_of_the_cards_is_so() -> None:
    kuhn, leduc = (pyspiel.load_game(name) for name in ("kuhn_poker", "leduc_poker"))
    for mine, other in permutations(range(3), 2):
        state = kuhn.new_initial_state()
        for action in (mine, other, 1, 0):
            state.apply_action(action)
        assert state.observation_string(0) == f"{mine}21"
        state = kuhn.new_initial_state()
        for action in (mine, other, 1, 1):
            state.apply_action(action)
        assert (state.returns()[0] > 0) == (mine > other)
    for mine, other, public in permutations(range(6), 3):
        state = leduc.new_initial_state()
        for action in (mine, other, 1, 1, public, 1, 1):
            state.apply_action(action)
        ranks = [(card // 2 == public // 2, card // 2) for card in (mine, other)]
        assert (state.returns()[0] > 0, state.returns()[0] < 0) == (ranks[0] > ranks[1], ranks[0] < ranks[1])


def test_moves_that_are_many_have_a_tool_that_lists_them() -> None:
    tools = load("openspiel:chess").tools
    assert [*tools] == ["move", "legal_moves"]
    assert "enum" not in tools["move"].input_schema["properties"]["move"]


async def test_a_long_list_of_moves_is_cut_and_the_tool_has_all() -> None:
    async with table("go") as episodes:
        episode = await opened(episodes)
        assert episode.first_observation.text.endswith(", and 262 more: call legal_moves.")
        every = (await episode.call("legal_moves", {})).observation.text
        every = json.loads(f"[{every}]")
        assert len(every) == 362
        assert (await episode.call("move", {"move": every[-1]})).reward == 0.0


@pytest.mark.parametrize("move", [999999, -1, 0, None, True, ["x0"], "x9", "X0", "", "x0 ", "x" * 100_000, 10**400])
async def test_what_is_no_move_is_refused_with_what_is_allowed(move: Any) -> None:
    async with table("connect_four") as episodes:
        one, other = await opened(episodes, 5), await opened(episodes, 5)
        with pytest.raises(InvalidArguments, match=r'has to be one of "x0", "x1"'):
            await one.call("move", {"move": move})
        first, second = [await it.call("move", {"move": "x3"}) for it in (one, other)]
        assert first.observation == second.observation


async def test_an_illegal_move_never_reaches_the_engine() -> None:
    async with table("tic_tac_toe") as episodes:
        one, other = await opened(episodes, 5), await opened(episodes, 5)
        seen = [(await it.call("move", {"move": "x(1,1)"})).observation.text for it in (one, other)]
        for _ in range(3):
            refused = await one.call("move", {"move": "x(1,1)"})
            assert refused.is_error
            assert refused.observation.text == f"'x(1,1)' is not legal now. {seen[0].splitlines()[-1]}"
        move = offered(seen[0])[0]
        assert (await one.call("move", {"move": move})).observation == (
            await other.call("move", {"move": move})
        ).observation
    async with table("chess") as episodes:
        episode = await opened(episodes)
        assert "e5" in offered(episode.first_observation.text)
        for wrong in ("e2", "resign", "", "e4" * 50_000):
            refused = await episode.call("move", {"move": wrong})
            assert refused.is_error
            assert len(refused.observation.text) < 500
        with pytest.raises(InvalidArguments, match="'move'"):
            await episode.call("move", {"move": 999999})
        assert (await episode.call("move", {"move": "e5"})).reward == 0.0


def test_a_move_after_the_end_does_not_reach_the_engine() -> None:
    environment: Any = load("openspiel:2048").make()
    environment.rng = Random(0)
    environment.reset(seed=0, task=None)
    while calls := environment.legal_calls():
        step = environment.move(*calls[0])
    assert step.terminated
    with pytest.raises(ToolError, match="The game is over"):
        environment.move("move", {"move": "Up"})


@pytest.mark.parametrize("game", ["hearts", "liars_dice"])
async def test_what_is_hidden_from_the_seat_is_not_shown_where_there_is_no_observation(game: str) -> None:
    async with table(f"{game}?seat=1") as episodes:
        for seed in range(5):
            state = dealt(pyspiel.load_game(game), 1, Random(seed))
            seen, _, _ = (await opened(episodes, seed)).first_observation.text.rpartition("\n\n")
            assert seen == state.information_state_string(1).rstrip()
            assert seen != str(state).rstrip()


def test_names_that_are_given_are_those_of_the_actions() -> None:
    reference = "envport_envs.openspiel.environment:OpenSpielEnvironment"
    definition = load(reference, options={"game": "connect_four", "moves": list("abcdefg")})
    environment: Any = definition.make()
    environment.rng = Random(0)
    assert environment.reset(seed=0, task=None).endswith('"a", "b", "c", "d", "e", "f", "g".')
    assert "x" in environment.move("move", {"move": "g"}).observation.splitlines()[5][6]


async def test_a_simultaneous_move_of_another_player_is_not_shown() -> None:
    async with table("matrix_rps?seat=1") as episodes:
        seen: set[str] = set()
        rewards: set[float | None] = set()
        for seed in range(12):
            episode = await opened(episodes, seed)
            seen.add(episode.first_observation.text)
            rewards.add((await episode.call("move", {"move": "Rock"})).reward)
        assert len(seen) == 1
        assert rewards == {-1.0, 0.0, 1.0}


async def test_games_that_are_over_before_the_first_turn_are_dealt_again() -> None:
    # In Euchre, one deal in ten ends at once for this seat.
    async with table("euchre") as episodes:
        for seed in range(60):
            assert offered((await opened(episodes, seed)).first_observation.text)


async def test_the_same_seed_is_the_same_episode_also_side_by_side() -> None:
    async def play(episodes: Episodes, seed: int, log: list[str]) -> None:
        episode = await opened(episodes, seed)
        log.append(episode.first_observation.text)
        while episode.live:
            log.append((await episode.call("move", {"move": offered(log[-1])[-1]})).observation.text)

    async with table("leduc_poker?seat=1") as episodes:
        seeds = (0, 1, 2, 2**63 - 1, 2)
        alone: list[list[str]] = [[] for _ in seeds]
        together: list[list[str]] = [[] for _ in seeds]
        for seed, log in zip(seeds, alone, strict=True):
            await play(episodes, seed, log)
        async with anyio.create_task_group() as tasks:
            for seed, log in zip(seeds, together, strict=True):
                tasks.start_soon(play, episodes, seed, log)
        assert together == alone
        assert alone[2] == alone[4]
        assert len({tuple(log) for log in alone}) > 2


@pytest.mark.parametrize(
    ("game", "steps"), [("tic_tac_toe", 20), ("connect_four", 84), ("2048", 1000), ("2048?max_steps=5", 5)]
)
def test_every_game_has_a_limit_of_calls(game: str, steps: int) -> None:
    assert load(f"openspiel:{game}").prototype.max_steps == steps


@pytest.mark.parametrize(
    ("reference", "error", "complaint"),
    [
        ("openspiel:leduc", EnvironmentNotFound, "no game 'leduc'. Near: leduc_poker"),
        ("openspiel:xyzzy", EnvironmentNotFound, "no game 'xyzzy'. Its games are: 2048, .*tic_tac_toe"),
        ('openspiel:"tic tac toe"', EnvironmentNotFound, "Near: tic_tac_toe"),
        ("openspiel:go(size=3)", InvalidOption, "Unknown parameter 'size'. Available parameters are: board_size"),
        ("openspiel:go(board_size=x)", InvalidOption, "Wrong type for parameter board_size"),
        ("openspiel:go(board_size=1000)", ConfigurationError, "board size up to 19"),
        ("openspiel:go(", InvalidOption, "Missing closing bracket"),
        ("openspiel:kuhn_poker(players=50)", InvalidOption, "num_players"),
        ("openspiel:tic_tac_toe?seat=2", InvalidOption, "no seat 2; its seats are 0 to 1"),
        ("openspiel:tic_tac_toe?seat=-1", InvalidOption, "'seat' is '-1'; it has to be an integer at least 0"),
        ("openspiel:tic_tac_toe?max_steps=0", InvalidOption, "'max_steps' is '0'"),
        ("openspiel:tic_tac_toe?opponent=me", InvalidOption, "no option 'opponent'; its options are: seat"),
        ("openspiel:negotiation", ConfigurationError, "draws chance itself"),
        ("openspiel:mfg_garnet", ConfigurationError, "not played by single players"),
        ("openspiel:crossword", ConfigurationError, "cannot be played: LegalActions unimplemented"),
    ],
)
def test_each_mistake_in_a_reference_is_named(reference: str, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint) as caught:
        load(reference)
    assert type(caught.value) is error


def test_the_name_is_the_game_s() -> None:
    assert load("openspiel:go(board_size=5)").name == "go"


def test_without_the_extra_one_is_told_which_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [name for name in sys.modules if name.startswith("envport_envs.openspiel")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with pytest.raises(MissingExtra, match=r"References with openspiel: .* pip install 'envport\[openspiel\]'"):
        load("openspiel:tic_tac_toe")
