"""Says in the log that a gateway is waited for."""

from __future__ import annotations

import logging
import math

from envport.errors import AtCapacity, EnvportError
from envport_bridges.rollouts.backend import RolloutTarget

__all__ = ["WaitingNotice"]

logger = logging.getLogger(__name__)

_FULL_SECONDS = 5.0


class WaitingNotice:
    """Says once in each outage that a gateway is waited for.

    Args:
        target: The environment.
        what: What waits, such as `calls`.
    """

    def __init__(self, target: RolloutTarget, what: str):
        self._target = target
        self._what = what
        self._said = False

    def say(self, error: EnvportError, waited: float = 0.0) -> None:
        """Something waits. A gateway that is only full often has a place again after a moment, so that is said later.

        Args:
            error: Why.
            waited: Seconds that it has waited.
        """
        if self._said or (isinstance(error, AtCapacity) and waited < _FULL_SECONDS):
            return
        self._said = True
        patience = self._target.patience
        for_how_long = "however long it takes" if math.isinf(patience) else f"for {patience:g} s each"
        logger.warning("%s of %s wait for the gateway, %s: %s", self._what, self._target.where, for_how_long, error)

    def over(self) -> None:
        """The gateway has answered."""
        self._said = False
