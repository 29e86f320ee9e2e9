"""The names of actions and observations that the environments' documentation gives.

Sources: the pages of Gymnasium 1.4 on its toy text and classic control environments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

__all__ = ["Documented", "action_names", "documented"]

_COMPASS = ("north", "east", "south", "west")


@dataclass(frozen=True)
class Documented:
    """What the documentation of an environment says of its actions and observations.

    Attributes:
        actions: Names of the actions of a discrete space, or of the components of a `Box`.
        observed: Names of the components of an observation that is an array.
        said: Tells an observation in words, given the unwrapped environment and the observation.
    """

    actions: Sequence[str]
    observed: Sequence[str] = ()
    said: Callable[[Any, Any], str] | None = None


def _cell(environment: Any, observation: Any) -> str:
    columns = environment.desc.shape[1] if hasattr(environment, "desc") else environment.shape[1]
    row, column = divmod(int(observation), int(columns))
    return f"You are in row {row}, column {column}; both count from 0."


def _taxi(environment: Any, observation: Any) -> str:
    places = ("R", "G", "Y", "B")
    row, column, passenger, destination = (int(part) for part in environment.decode(int(observation)))
    where = f"waits at {places[passenger]}" if passenger < len(places) else "is in the taxi"
    return (
        f"The taxi is in row {row}, column {column}; both count from 0. The passenger {where}, and wants to go to "
        f"{places[destination]}."
    )


def _blackjack(environment: Any, observation: Any) -> str:
    hand, dealer, ace = (int(part) for part in observation)
    usable = ", with a usable ace" if ace else ""
    return f"Your hand counts {hand}{usable}. The dealer shows {'an ace' if dealer == 1 else dealer}."


_TOY, _CLASSIC = "gymnasium.envs.toy_text.", "gymnasium.envs.classic_control."
_MOUNTAIN = ("position", "velocity")
_DOCUMENTED = {
    f"{_TOY}frozen_lake:FrozenLakeEnv": Documented(("left", "down", "right", "up"), said=_cell),
    f"{_TOY}cliffwalking:CliffWalkingEnv": Documented(("up", "right", "down", "left"), said=_cell),
    f"{_TOY}taxi:TaxiEnv": Documented(("south", "north", "east", "west", "pickup", "dropoff"), said=_taxi),
    f"{_TOY}blackjack:BlackjackEnv": Documented(("stick", "hit"), said=_blackjack),
    f"{_CLASSIC}cartpole:CartPoleEnv": Documented(
        ("left", "right"), ("cart position", "cart velocity", "pole angle", "pole angular velocity")
    ),
    f"{_CLASSIC}mountain_car:MountainCarEnv": Documented(("left", "none", "right"), _MOUNTAIN),
    f"{_CLASSIC}continuous_mountain_car:Continuous_MountainCarEnv": Documented(("force",), _MOUNTAIN),
    f"{_CLASSIC}pendulum:PendulumEnv": Documented(("torque",), ("cos theta", "sin theta", "angular velocity")),
    f"{_CLASSIC}acrobot:AcrobotEnv": Documented(
        ("torque -1", "torque 0", "torque +1"),
        ("cos theta1", "sin theta1", "cos theta2", "sin theta2", "angular velocity 1", "angular velocity 2"),
    ),
}


def documented(environment: Any) -> Documented:
    """What is known of an unwrapped environment; nothing if its class is not in the table."""
    cls = cast("type[Any]", type(environment))
    return _DOCUMENTED.get(f"{cls.__module__}:{cls.__qualname__}", Documented(()))


def action_names(environment: Any) -> Sequence[str]:
    """The names of an unwrapped environment's actions, as it gives them itself, or as its documentation does.

    MiniGrid has an enumeration, ALE a method.
    """
    meanings = getattr(environment, "get_action_meanings", None)
    if callable(meanings):
        return [str(meaning).lower() for meaning in cast("Sequence[Any]", meanings())]
    members: Any = getattr(getattr(environment, "actions", None), "__members__", None)
    if members:
        return sorted(members, key=lambda name: int(members[name]))
    return documented(environment).actions
