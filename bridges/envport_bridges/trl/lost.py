"""Reward functions that leave lost episodes out.

TRL leaves a completion out of training only if every reward function gave `None` for it. Most functions know nothing of
faults, so a lost episode would count as whatever they gave it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from envport.errors import ConfigurationError
from envport_bridges.trl.rollout_environment import RolloutEnvironment, play_of

__all__ = ["LOST_COLUMN", "WithoutLost", "lost_flags", "without_lost"]

LOST_COLUMN = "episode_lost"
"""The column in which a `rollout_func` says which episodes were lost."""


def lost_flags(environments: Sequence[Any] | None, columns: Mapping[str, Any]) -> list[bool] | None:
    """Which episodes of a batch were lost; `None` if nothing says so.

    Args:
        environments: The environment instances of the batch.
        columns: The columns that reward functions get.
    """
    if environments is not None:
        return [isinstance(one, RolloutEnvironment) and play_of(one).record.lost for one in environments]
    return columns.get(LOST_COLUMN)


def without_lost(function: Callable[..., Any]) -> WithoutLost:
    """Wrap a reward function: it gives `None` for lost episodes, and for all others what it gave before.

    Args:
        function: A reward function as TRL takes it, sync or async.

    Raises:
        ConfigurationError: It is a reward model, or the name of one.
    """
    name = function if isinstance(function, str) else type(function).__name__
    if not callable(function) or hasattr(function, "state_dict"):
        raise ConfigurationError(
            f"{name!r} is a reward model, and only reward functions can be wrapped. Pass it to ConcurrentGRPOTrainer "
            "as it is: that trainer leaves lost episodes out whatever the rewards are."
        )
    utils: Any = import_module("trl.trainer.utils")
    return (WithoutLostAsync if utils.is_async_callable(function) else WithoutLost)(function)


class WithoutLost:
    """A reward function that gives `None` for lost episodes. Picklable if the function is.

    Args:
        function: The function that scores all others.
    """

    def __init__(self, function: Callable[..., Any]):
        utils: Any = import_module("trl.trainer.utils")
        self.function = function
        # TRL logs the rewards of a function under its name.
        self.__name__: str = utils.get_callable_name(function)

    def __call__(self, **columns: Any) -> Any:
        """Score a batch; see the wrapped function."""
        return _masked(self.function(**columns), columns)


class WithoutLostAsync(WithoutLost):
    """The same for an async function."""

    async def __call__(self, **columns: Any) -> Any:
        """Score a batch; see the wrapped function."""
        return _masked(await self.function(**columns), columns)


def _masked(rewards: Sequence[float | None], columns: Mapping[str, Any]) -> list[float | None]:
    lost = lost_flags(columns.get("environments"), columns)
    if lost is None or len(lost) != len(rewards):
        # TRL says so itself if a function gives too few rewards, or too many.
        return list(rewards)
    return [None if is_lost else reward for reward, is_lost in zip(rewards, lost, strict=True)]
