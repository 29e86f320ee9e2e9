"""What a foreign environment server may do wrong."""

from __future__ import annotations

import math
from typing import Any, Literal

from envport import UpstreamLost
from envport.errors import AtCapacity

__all__ = ["BadStatus", "CallRaised", "Exceptions", "ServerFull", "reward_of"]

Exceptions = Literal["fault", "refusal"]
"""What it is if the environment behind the server raises an exception: a fault of the environment, which ends the
episode; or a refusal, whose text the player reads, and the episode goes on."""

_RETRY_SECONDS = 1.0


class CallRaised(Exception):
    """The environment behind the server raised an exception. The session goes on."""


class ServerFull(Exception):
    """The server takes no further session now.

    Args:
        message: What the server said.
        most: How many sessions it takes, if it said so.
        retry_after: Seconds after which it wants to be asked again, if it said so.
    """

    def __init__(self, message: str, most: int | None = None, retry_after: float | None = None):
        super().__init__(message)
        self.most = most
        self.retry_after = retry_after

    def refusal(self, what: str) -> AtCapacity:
        """The same for whoever opens an episode.

        Args:
            what: What the server is, such as `OpenEnv server`.
        """
        wait = _RETRY_SECONDS if self.retry_after is None else self.retry_after
        return AtCapacity(f"The {what} takes no further session now: {self}", wait, limit="environment")


class BadStatus(UpstreamLost):
    """A server answered with an HTTP status that is no success.

    Args:
        message: What happened.
        status: The status.
        detail: What the server said.
    """

    def __init__(self, message: str, status: int, detail: str = ""):
        super().__init__(message)
        self.status = status
        self.detail = detail


def reward_of(value: Any, what: str) -> float | None:
    """A reward in an answer.

    Args:
        value: The reward as the server sent it.
        what: What the server is.

    Raises:
        UpstreamLost: It is no number.
    """
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not _is_finite(value):
        raise UpstreamLost(f"the {what}'s answer has {value!r} as reward, which is no number")
    return float(value)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:
        return False
