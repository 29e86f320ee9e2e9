"""The scheme `gymnasium:`."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field

from envport.registry import EnvironmentDefinition
from envport_envs.gymnasium.environment import GymnasiumEnvironment, Rendering
from envport_envs.gymnasium.library import registered

__all__ = ["gymnasium"]


def gymnasium(
    rest: str,
    /,
    *,
    arguments: dict[str, Any] | None = None,
    render: Rendering = "text",
    max_steps: Annotated[int, Field(ge=1)] | None = None,
) -> EnvironmentDefinition:
    """What is registered with Gymnasium, MiniGrid included: `gymnasium:FrozenLake-v1`.

    Args:
        rest: The id of an environment, such as `FrozenLake-v1`, `MiniGrid-DoorKey-6x6-v0` or `module:MyOwn-v0`.
        arguments: Arguments of the environment's class, as JSON: `{"is_slippery": false}`.
        render: What the player sees; see `GymnasiumEnvironment`.
        max_steps: After how many steps an episode is truncated; see `GymnasiumEnvironment`.

    Raises:
        EnvironmentNotFound: Gymnasium knows no such id.
        InvalidOption: The environment does not take the arguments, or does not render so.
        ConfigurationError: A package that the environment needs is missing, or its actions cannot be tools.
    """
    name = re.sub("[^A-Za-z0-9._-]+", "-", registered(rest).id)
    given: dict[str, Any] = {"arguments": arguments, "render": render, "max_steps": max_steps}
    options = {"id": rest, **{key: value for key, value in given.items() if value not in (None, "text")}}
    return EnvironmentDefinition(name, GymnasiumEnvironment, options)
