"""Which environments can be run: each is prepared when the gateway starts, and again for as long as that fails."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import anyio

from envport.clock import Clock
from envport.errors import EnvportError
from envport.registry import EnvironmentDefinition

__all__ = ["Preparation", "Readiness"]

logger = logging.getLogger(__name__)

# What was missing may come: memory, a network share, a license.
_AGAIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Preparation:
    """How far the preparing of an environment is.

    Attributes:
        status: `failed` if it cannot be run; that is tried again.
        reason: Why it cannot be run.
    """

    status: Literal["preparing", "ready", "failed"]
    reason: str | None = None


class Readiness:
    """Prepares environments and tells how far that is.

    Args:
        environments: The environments.
        prepare: Gets ready to open episodes of one; raises an error if that cannot be.
        clock: The time.
    """

    def __init__(
        self,
        environments: Iterable[EnvironmentDefinition],
        prepare: Callable[[EnvironmentDefinition], Awaitable[None]],
        clock: Clock,
    ):
        self._environments = list(environments)
        self._prepare = prepare
        self._clock = clock
        self._preparations = {spec.name: Preparation("preparing") for spec in self._environments}

    @property
    def preparations(self) -> Mapping[str, Preparation]:
        """How far each environment is, by its name."""
        return self._preparations

    async def run(self) -> None:
        """Prepare all of them, side by side."""
        async with anyio.create_task_group() as tasks:
            for spec in self._environments:
                tasks.start_soon(self._until_ready, spec)

    async def _until_ready(self, spec: EnvironmentDefinition) -> None:
        while (preparation := await self._tried(spec)).status == "failed":
            # Said once; whoever opens an episode of it will see that fail too.
            if self._preparations[spec.name] != preparation:
                logger.error("environment %s cannot be run: %s", spec.name, preparation.reason)
            self._preparations[spec.name] = preparation
            await self._clock.sleep(_AGAIN_SECONDS)
        self._preparations[spec.name] = preparation

    async def _tried(self, spec: EnvironmentDefinition) -> Preparation:
        try:
            await self._prepare(spec)
        except EnvportError as error:
            return Preparation("failed", str(error))
        except Exception as error:
            # One that cannot be run must not end the gateway.
            logger.exception("environment %s could not be prepared", spec.name)
            return Preparation("failed", f"{type(error).__name__} while it was being prepared; the log says more")
        return Preparation("ready")
