"""The extra `openspiel`, and the games that it has."""

from __future__ import annotations

import difflib
from collections import defaultdict
from importlib import import_module
from random import Random
from typing import Any

from envport.errors import ConfigurationError, EnvironmentNotFound, InvalidOption, MissingExtra

__all__ = ["advance", "loaded", "move_names", "named", "pyspiel"]

_MOST_NAMED = 64
_SAMPLED_GAMES = 5
_SAMPLED_MOVES = 200

try:
    pyspiel: Any = import_module("pyspiel")
except ImportError as error:
    raise MissingExtra("References with openspiel:", "openspiel") from error


def loaded(text: str) -> Any:
    """Load a game. In a game of simultaneous moves, the players' moves are asked for one after another.

    Args:
        text: Its name, with parameters if need be: `go(board_size=5)`.

    Raises:
        EnvironmentNotFound: There is no such game; the message has the nearest ones.
        InvalidOption: The game does not take these parameters.
        ConfigurationError: It is not a game that a player can play through tools.
    """
    name = text.partition("(")[0]
    known: list[str] = pyspiel.registered_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, 4, 0.5)
        more = f" Near: {', '.join(near)}." if near else f" Its games are: {', '.join(sorted(known))}."
        raise EnvironmentNotFound(f"openspiel:{text}: OpenSpiel has no game {name!r}.{more}")
    try:
        game = pyspiel.load_game_as_turn_based(text)
    except pyspiel.SpielError as error:
        raise InvalidOption(f"openspiel:{text} cannot be loaded: {' '.join(str(error).split())}") from None
    if (why := _unplayable(game.get_type())) is not None:
        raise ConfigurationError(f"openspiel:{text} cannot be played: {why}")
    return game


def _unplayable(kind: Any) -> str | None:
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        return "it is not played by single players"
    if kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
        return "its engine draws chance itself, so that a seed would not give the same episode"
    return None


def advance(state: Any, seat: int, rng: Random) -> None:
    """Draw chance and the moves of the other players, until it is the seat's turn or the game is over."""
    while not state.is_terminal() and state.current_player() != seat:
        if state.is_chance_node():
            outcomes, chances = zip(*state.chance_outcomes(), strict=True)
            state.apply_action(rng.choices(outcomes, chances)[0])
        else:
            state.apply_action(rng.choice(state.legal_actions()))


def named(state: Any, seat: int, fixed: list[str] | None) -> dict[str, int]:
    """The legal moves of a seat whose turn it is, by name. No other move is ever named: the engine may crash.

    Args:
        state: The state, in which it is the seat's turn.
        seat: The seat.
        fixed: The name of each action, where the names do not depend on the state.
    """
    actions: list[int] = state.legal_actions()
    if fixed is not None:
        return {fixed[action]: action for action in actions}
    return {str(state.action_to_string(seat, action)): action for action in actions}


def move_names(text: str, game: Any, seat: int) -> list[str] | None:
    """The names of a seat's actions, as random games show them; `None` if they are many, or depend on the state.

    Args:
        text: The game's name, for messages.
        game: The game.
        seat: The seat.

    Raises:
        ConfigurationError: The engine cannot play the game by the numbers of actions.
    """
    try:
        # Some parameters are refused only here.
        game.new_initial_state()
        return _sampled_names(game, seat)
    except pyspiel.SpielError as error:
        raise ConfigurationError(f"openspiel:{text} cannot be played: {' '.join(str(error).split())}") from None


def _sampled_names(game: Any, seat: int) -> list[str] | None:
    count: int = game.num_distinct_actions()
    if count > _MOST_NAMED:
        return None
    found: dict[int, set[str]] = defaultdict(set)
    rng = Random(0)
    for _ in range(_SAMPLED_GAMES):
        state = game.new_initial_state()
        for _ in range(_SAMPLED_MOVES):
            advance(state, seat, rng)
            if state.is_terminal():
                break
            legal = named(state, seat, None)
            for name, action in legal.items():
                found[action].add(name)
            state.apply_action(rng.choice([*legal.values()]))
    names = [name for action in range(count) for name in found.get(action, ())]
    fixed = len(names) == count == len(found) == len(set(names))
    return names if fixed else None
