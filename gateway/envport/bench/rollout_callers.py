"""Callers that use the client of the package that plays rollouts. It is found by entry point, never imported."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Protocol, cast

from envport.errors import ConfigurationError

__all__ = ["RolloutCaller", "RolloutCallerFactory", "rollout_caller"]

_GROUP = "envport.bench_callers"


class RolloutCaller(Protocol):
    """Plays an episode of `echo`."""

    async def begin(self) -> None:
        """Open the episode."""
        ...

    async def call(self) -> None:
        """Call the tool, and check its answer.

        Raises:
            EnvportError: The answer was wrong, or there was none.
        """
        ...

    async def end(self) -> None:
        """Close the episode."""
        ...


class RolloutCallerFactory(Protocol):
    """Makes a caller. Callers with the same gateway share what their client shares."""

    def __call__(self, gateway: str, /) -> RolloutCaller:
        """Make a caller at the gateway with this address."""
        ...


def rollout_caller() -> RolloutCallerFactory:
    """What makes callers.

    Raises:
        ConfigurationError: The entry point is missing.
    """
    found = entry_points(group=_GROUP, name="rollouts")
    if not found:
        raise ConfigurationError(f"no installed package has the entry point {_GROUP}: rollouts. Install envport again")
    return cast("RolloutCallerFactory", next(iter(found)).load())
