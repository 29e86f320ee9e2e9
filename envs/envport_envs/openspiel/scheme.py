"""The scheme `openspiel:`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from envport.registry import EnvironmentDefinition
from envport_envs.openspiel.environment import OpenSpielEnvironment, checked_seat
from envport_envs.openspiel.library import loaded, move_names

__all__ = ["openspiel"]


def openspiel(
    rest: str,
    /,
    *,
    seat: Annotated[int, Field(ge=0)] = 0,
    max_steps: Annotated[int, Field(ge=1)] | None = None,
) -> EnvironmentDefinition:
    """A game of OpenSpiel: `openspiel:tic_tac_toe`.

    Args:
        rest: The name of a game, with parameters if need be: `tic_tac_toe`, `go(board_size=5)`.
        seat: Which player is played, from 0; see `OpenSpielEnvironment`.
        max_steps: After how many calls an episode is truncated; see `OpenSpielEnvironment`.

    Raises:
        EnvironmentNotFound: OpenSpiel has no such game.
        InvalidOption: The game does not take the parameters, or has no such seat.
        ConfigurationError: It is not a game that a player can play through tools.
    """
    game = loaded(rest)
    checked_seat(rest, game, seat)
    options = {"game": rest, "seat": seat} | ({} if max_steps is None else {"max_steps": max_steps})
    name = rest.partition("(")[0]
    return EnvironmentDefinition(name, OpenSpielEnvironment, options, {"moves": move_names(rest, game, seat)})
