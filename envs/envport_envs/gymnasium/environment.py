"""An environment of Gymnasium as an environment of envport."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from envport import Environment, Step, Task, ToolDefinition, ToolError
from envport_envs.gymnasium.actions import Actions
from envport_envs.gymnasium.library import made, registered, rendering_modes
from envport_envs.gymnasium.names import action_names, documented
from envport_envs.gymnasium.observations import picture, readable, words

__all__ = ["GymnasiumEnvironment", "Rendering"]

Rendering = Literal["text", "rgb_array", "both"]

_DEFAULT_STEPS = 200
_SEEDS = 2**31
_PYGAME = ("gymnasium.envs.toy_text.", "gymnasium.envs.classic_control.", "gymnasium.envs.box2d.")


class GymnasiumEnvironment(Environment):
    """An environment of Gymnasium, with one tool: `act`.

    Actions have the names that the environment or its documentation gives them. Where there are none, they are numbers
    with the bounds of the action space. A `Box` of one dimension, a `MultiDiscrete`, `MultiBinary`, `Tuple` and `Dict`
    have a parameter for each component.

    Rewards and ends are Gymnasium's. The same seed gives the same episode; a seed below 2**31 gives the episode that
    Gymnasium's `reset(seed=...)` gives.

    Args:
        id: The id under which it is registered; `module:id` imports the module first.
        arguments: Arguments of its class, checked by their types.
        render: What the player sees: `text` (words, the drawing as text if it has one, or data; an observation that is
            a picture stays one), `rgb_array` (the rendered picture), or `both`.
        max_steps: After how many steps an episode is truncated. If not given, it is what is registered, what the
            environment says itself, or 200.
    """

    runtime = "thread"
    stalling = (
        "an episode that is not played to its end earns what it has paid so far: count it as lost where that matters"
    )

    def __init__(
        self,
        id: str = "FrozenLake-v1",
        arguments: dict[str, Any] | None = None,
        render: Rendering = "text",
        max_steps: Annotated[int, Field(ge=1)] | None = None,
    ):
        drawn = "rgb_array" if render != "text" else "ansi" if "ansi" in rendering_modes(registered(id)) else None
        self._render: Rendering = render
        self._gym = made(id, arguments or {}, drawn, max_steps)
        self._inner = self._gym.unwrapped
        self._known = documented(self._inner)
        self._actions = Actions(self._gym.action_space, action_names(self._inner))
        self._mask: Any = None
        self._over = False
        self.deterministic = not self._gym.spec.nondeterministic
        own: Any = getattr(self._inner, "max_steps", None)
        registered_steps = self._gym.spec.max_episode_steps
        self.max_steps = registered_steps or (own if type(own) is int and own > 0 else _DEFAULT_STEPS)
        self.instructions = f"{_description(self._inner)}\n\nCall act to take an action."

    def tool_definitions(self) -> list[ToolDefinition]:
        """The tool `act`, whose parameters are those of the action space."""
        return [self._actions.tool("act")]

    def reset(self, *, seed: int, task: Task | None) -> Any:
        """Reset the environment."""
        observation, info = self._gym.reset(seed=seed % _SEEDS)
        return self._shown(observation, info)

    def act(self, name: str, arguments: Mapping[str, Any]) -> Step:
        """Take an action."""
        if self._over:
            raise ToolError("The episode is over.")
        action = self._actions.read(arguments)
        observation, reward, terminated, truncated, info = self._gym.step(action)
        self._over = bool(terminated or truncated)
        return Step(
            self._shown(observation, info),
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            info=readable(info),
        )

    def legal_calls(self) -> list[tuple[str, dict[str, Any]]] | None:
        """All actions of a discrete space, or those that the environment's `action_mask` says make sense."""
        return self._actions.calls(self._mask)

    def close(self) -> None:
        """Close the environment."""
        # These do nothing there but shut pygame down, for all episodes of the process.
        if not type(self._inner).__module__.startswith(_PYGAME):
            self._gym.close()

    def _shown(self, observation: Any, info: Mapping[str, Any]) -> Any:
        self._mask = info.get("action_mask")
        drawing: Any = self._gym.render() if self._gym.render_mode is not None else None
        if self._render == "rgb_array":
            return picture(drawing)
        told = words(self._inner, observation, self._known, drawing if self._render == "text" else None)
        return told if self._render == "text" else [told, picture(drawing)]


def _description(environment: Any) -> str:
    """What the environment's documentation says that it is: its first paragraph and its section `Description`."""
    text = "\n".join(line.strip() for line in inspect.cleandoc(type(environment).__doc__ or "").splitlines())
    first = text.partition("\n\n")[0] if not text.startswith("##") else ""
    section = re.search(r"^## Description\s*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return f"{first}\n\n{section[1] if section is not None else ''}".strip()
