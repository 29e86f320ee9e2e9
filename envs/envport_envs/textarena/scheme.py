"""The scheme `textarena:`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from envport.registry import EnvironmentDefinition
from envport_envs.textarena.environment import TextArenaEnvironment
from envport_envs.textarena.library import checked

__all__ = ["textarena"]


def textarena(
    rest: str,
    /,
    *,
    seat: Annotated[int, Field(ge=0)] = 0,
    error_allowance: Annotated[int, Field(ge=0)] = 1,
    max_steps: Annotated[int, Field(ge=1)] | None = None,
) -> EnvironmentDefinition:
    """A game of TextArena: `textarena:TowerOfHanoi-v0`.

    Args:
        rest: The id of a game: `Wordle-v0`, `TowerOfHanoi-v0-hard`.
        seat: Which player is played, from 0; see `TextArenaEnvironment`.
        error_allowance: How many invalid moves in a row are forgiven; see `TextArenaEnvironment`.
        max_steps: After how many calls an episode is truncated; see `TextArenaEnvironment`.

    Raises:
        EnvironmentNotFound: TextArena has no such game.
        InvalidOption: The game has no such seat.
        ConfigurationError: The game cannot be played here.
        MissingExtra: TextArena is not installed.
    """
    checked(rest)
    options = {"id": rest, "seat": seat, "error_allowance": error_allowance}
    options |= {} if max_steps is None else {"max_steps": max_steps}
    return EnvironmentDefinition(rest, TextArenaEnvironment, options)
