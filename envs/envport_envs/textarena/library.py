"""The extra `textarena`, and the games that it has."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from envport.errors import ConfigurationError, EnvironmentNotFound, MissingExtra
from envport_envs.textarena.contests import CONTESTS
from envport_envs.textarena.games import Game, Move
from envport_envs.textarena.puzzles import PUZZLES
from envport_envs.textarena.randomness import LOCK, restored_random
from envport_envs.textarena.words import imported_game, without_downloads

__all__ = ["checked", "fresh", "progress", "rules_of"]

_RAW = "-raw"
_LONGEST_TEXT = 1_000
# A copy shares the word lists, which take most of a second to read.
_COPIED = ("Hangman", "WordLadder", "Wordle")

_EXCHANGED = "its engine gives TextArena the arguments of messages and rewards in the wrong order"
_UNSOUND = {
    "Bandit": "the worse the wrong button, the higher its reward",
    "Countdown": _EXCHANGED,
    "Cryptarithm": _EXCHANGED,
    "FifteenPuzzle": "its engine raises when the puzzle is solved",
    "Set": "its engine counts the same card three times as a set",
    "Slitherlink": _EXCHANGED,
    "ThreeCardMonte": _EXCHANGED,
}

_TEXT = {
    "type": "string",
    "minLength": 1,
    "maxLength": _LONGEST_TEXT,
    "description": "The move, as the game's rules say: [...].",
}
_ACT = Game(
    rules=lambda game: "Play the game. The first observation has its rules.",
    moves=lambda game: [Move("act", "Make a move, in the notation of the game.", "{text}", {"text": _TEXT})],
    legal=lambda game: [],
)


@cache
def _registry() -> dict[str, Any]:
    """What is registered, by the id without the ending of the plain variant."""
    if find_spec("textarena") is None:
        raise MissingExtra("References with textarena:", "textarena")
    with LOCK, without_downloads():
        registry: dict[str, Any] = import_module("textarena.envs.registration").ENV_REGISTRY
    return {name.removesuffix(_RAW): spec for name, spec in registry.items() if name.endswith(_RAW)}


def _package(name: str) -> str:
    """The name of TextArena's package of a game.

    Raises:
        EnvironmentNotFound: TextArena has no such game.
    """
    known = _registry()
    if name not in known:
        near = difflib.get_close_matches(name, known, 4, 0.5)
        more = f"Near: {', '.join(near)}." if near else f"Its games are: {', '.join(_bases(known))}."
        raise EnvironmentNotFound(f"textarena:{name}: TextArena has no game {name!r}. {more}")
    return known[name].entry_point.split(".")[2]


def _bases(names: Iterable[str]) -> list[str]:
    """The ids without those of easier and harder variants."""
    return sorted({name.partition("-v0")[0] + "-v0" for name in names})


def rules_of(name: str) -> Game:
    """What is known of a game: its typed moves, or the tool `act`.

    Args:
        name: The game's id, such as `TowerOfHanoi-v0`.

    Raises:
        EnvironmentNotFound: TextArena has no such game; the message has the nearest ones.
        MissingExtra: TextArena is not installed.
    """
    package = _package(name)
    return PUZZLES.get(package) or CONTESTS.get(package) or _ACT


def checked(name: str) -> None:
    """Make a game and reset it, to see whether it can be played.

    Args:
        name: The game's id.

    Raises:
        EnvironmentNotFound: TextArena has no such game.
        ConfigurationError: It cannot be played here.
    """
    package, rules = _package(name), rules_of(name)
    if (why := _UNSOUND.get(package)) is not None:
        raise ConfigurationError(f"textarena:{name} cannot be played: {why}")
    try:
        game = fresh(name)
        with restored_random():
            game.reset(num_players=rules.players, seed=0)
    except AssertionError:
        _refuse_players(name)
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ConfigurationError(f"textarena:{name} cannot be made: {why}") from error
    else:
        if rules.players == 1 and type(game.state).__name__ != "SinglePlayerState":
            _refuse_players(name)


def _refuse_players(name: str) -> None:
    known = _bases(it for it in _registry() if _package(it) in CONTESTS)
    raise ConfigurationError(
        f"textarena:{name} is for several players, and its legal moves are not known, so that there is nobody to play "
        f"against. Games for two players that can be played: {', '.join(known)}"
    )


def fresh(name: str) -> Any:
    """TextArena's object for one episode of a game.

    Args:
        name: The game's id.
    """
    made = _made(name)
    if _package(name) in _COPIED:
        return copy.copy(made)
    # Its lists must not be shared: Kuhn Poker shuffles its deck in place.
    return copy.deepcopy(made)


@cache
def _made(name: str) -> Any:
    spec = _registry()[name]
    path, _, class_name = spec.entry_point.partition(":")
    with LOCK, restored_random(), without_downloads():
        module = imported_game(path)
        # What some games print would get into the messages of an MCP server on stdio.
        module.print = _silent
        return getattr(module, class_name)(**spec.kwargs)


def _silent(*args: Any, **kwargs: Any) -> None:
    return None


def progress(game: Any) -> float:
    """The reward that a game gives for what has been reached so far, from 0; 0 if it does not tell."""
    reached = getattr(game, "_get_percentage_completion", None)
    return 0.0 if reached is None else float(reached())
