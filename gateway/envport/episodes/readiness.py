"""Which environments can be run. Each is prepared when the gateway starts, and again until that succeeds."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import anyio

from envport.clock import Clock
from envport.definition import EnvironmentDefinition
from envport.errors import ConfigurationError, EnvportError

__all__ = ["Preparation", "Readiness"]

logger = logging.getLogger(__name__)

# The cause may go away, such as missing memory, an absent network share or a missing license.
_AGAIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Preparation:
    """The preparation status of an environment.

    Attributes:
        status: The status. After `failed`, the preparation is tried again.
        reason: Why the environment cannot be run.
        limits_kept_by: What keeps the limits on memory, processes and CPU time, if it runs in processes of its own.
    """

    status: Literal["preparing", "ready", "failed"]
    reason: str | None = None
    limits_kept_by: str | None = None


class Readiness:
    """Prepares environments, and reports the status of each.

    Args:
        environments: The environments.
        prepare: Prepares the runtime to open episodes of an environment, and returns what keeps the limits on their
            processes; raises an error if it cannot.
        clock: The clock.
    """

    def __init__(
        self,
        environments: Iterable[EnvironmentDefinition],
        prepare: Callable[[EnvironmentDefinition], Awaitable[str | None]],
        clock: Clock,
    ):
        self._environments = {spec.name: spec for spec in environments}
        self._prepare = prepare
        self._clock = clock
        self._preparations = {name: Preparation("preparing") for name in self._environments}

    @property
    def preparations(self) -> Mapping[str, Preparation]:
        """The status of each environment, by name."""
        return self._preparations

    async def run(self) -> None:
        """Prepare all environments concurrently."""
        async with anyio.create_task_group() as tasks:
            for spec in self._environments.values():
                tasks.start_soon(self._until_ready, spec)

    async def replace(self, spec: EnvironmentDefinition) -> None:
        """Prepare an environment, and replace the one of the same name with it. It is tried only once.

        Raises:
            ConfigurationError: It cannot be run. The one before stays.
        """
        preparation = await self._tried(spec)
        if preparation.status == "failed":
            raise ConfigurationError(f"environment {spec.name!r} cannot be run: {preparation.reason}")
        self._environments[spec.name] = spec
        self._preparations[spec.name] = preparation

    async def _until_ready(self, spec: EnvironmentDefinition) -> None:
        while (preparation := await self._tried(spec)).status == "failed" and self._environments[spec.name] is spec:
            # Log the same failure only once. Opening an episode of this environment reports it too.
            if self._preparations[spec.name] != preparation:
                logger.error("environment %s cannot be run: %s", spec.name, preparation.reason)
            self._preparations[spec.name] = preparation
            await self._clock.sleep(_AGAIN_SECONDS)
        if self._environments[spec.name] is spec:
            self._preparations[spec.name] = preparation

    async def _tried(self, spec: EnvironmentDefinition) -> Preparation:
        try:
            keeper = await self._prepare(spec)
        except EnvportError as error:
            return Preparation("failed", str(error))
        except Exception as error:
            # One broken environment must not stop the gateway.
            logger.exception("environment %s could not be prepared", spec.name)
            return Preparation("failed", f"{type(error).__name__} while it was being prepared; the log says more")
        if keeper is not None:
            logger.debug("environment %s: limits on memory, processes and CPU time are kept by %s", spec.name, keeper)
        return Preparation("ready", limits_kept_by=keeper)
