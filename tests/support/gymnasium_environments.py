"""Environments that are registered with Gymnasium when this module is imported: `gymnasium_environments:Spaces-v0`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy
from gymnasium import spaces

SPACES: dict[str, Any] = {
    "discrete": spaces.Discrete(3, start=-1),
    "meant": spaces.Discrete(2, start=5),
    "meant in part": spaces.Discrete(3),
    "numbers": spaces.Box(numpy.array([-1, 0.4], "float32"), numpy.array([1, 0.5], "float32")),
    "unbounded": spaces.Box(-numpy.inf, numpy.inf, (1,), "float32"),
    "wide": spaces.Box(-1, 1, (20,), "float64"),
    "matrix": spaces.Box(0, 9, (2, 3), "int8"),
    "uneven": spaces.Box(numpy.zeros((2, 2)), numpy.array([[1.0, 2.0], [3.0, 4.0]]), (2, 2), "float64"),
    "several": spaces.MultiDiscrete([2, 3], start=[0, 5]),
    "bits": spaces.MultiBinary(3),
    "text": spaces.Text(4, charset="ab]^-\\"),
    "pair": spaces.Tuple((spaces.Discrete(2), spaces.Box(-2, 2, (2,), "float32"))),
    "named": spaces.Dict(
        {
            "where": spaces.Discrete(4),
            "how": spaces.Dict({"fast": spaces.Discrete(2), "along": spaces.Tuple((spaces.MultiDiscrete([2, 2]),))}),
        }
    ),
    "graph": spaces.Graph(spaces.Discrete(2), None),
}
CLOSED: list[Any] = []


class Spaces(gymnasium.Env[Any, Any]):
    """Shows the action that it was given, and how often it was stepped.

    Args:
        space: The action space.
        broken: Whether a step raises.
    """

    def __init__(self, space: str = "discrete", broken: bool = False, places: int = 3) -> None:
        self.action_space = SPACES[space]
        self.observation_space = spaces.Text(1000)
        self.broken = broken
        self.left = places
        if space.startswith("meant"):
            self.get_action_meanings = lambda: ["NOOP", "FIRE"]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        # NumPy's older generators take no seed above 2**32.
        numpy.random.RandomState(seed)
        return "ready", {}

    def step(self, action: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self.broken:
            raise ZeroDivisionError("a mistake of the engine")
        assert action in self.action_space
        self.left -= 1
        info = {"odd": [numpy.float32(numpy.nan), float("inf")], "kept": numpy.arange(2)}
        return repr(action), 1.0, self.left == 0, False, info

    def close(self) -> None:
        CLOSED.append(self)


class Screen(gymnasium.Env[Any, Any]):
    """Shows numbers beside a picture."""

    action_space = spaces.Discrete(1)
    observation_space = spaces.Dict(
        {"screen": spaces.Box(0, 255, (20, 30, 3), "uint8"), "left": spaces.Box(0, 255, (2, 3), "uint8")}
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return {"screen": numpy.zeros((20, 30, 3), "uint8"), "left": numpy.ones((2, 3), "uint8")}, {}


gymnasium.register("Screen-v0", Screen)
gymnasium.register("Spaces-v0", Spaces)
gymnasium.register("own/Spaces-v0", Spaces)
