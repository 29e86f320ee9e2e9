"""Who asks the model: a session has a token of its own, and all that was sampled for it."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from envport_bridges.agents.model.calls import CallTree

__all__ = ["ModelSession"]


@dataclass(eq=False)
class ModelSession:
    """The model as one episode's agent sees it.

    Attributes:
        max_calls: Most turns that the model writes for it. A request that is sent again counts again.
        token: Bearer token (`Authorization: Bearer` or `x-api-key`) of its requests.
        calls: The turns that were sampled for it.
        refused: How many of its requests were refused, by the code of the refusal.
        ignored: How many of its requests had a setting that is not honoured, by the setting.
        open: Whether its requests are still answered.
        waiting: Requests that have no answer yet.
        answering: Entered while a request waits for the model: that time is not the agent's.
        turns: Requests that were answered with a turn, or are about to be.
    """

    max_calls: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    calls: CallTree = field(default_factory=CallTree)
    refused: Counter[str] = field(default_factory=Counter[str])
    ignored: Counter[str] = field(default_factory=Counter[str])
    open: bool = True
    waiting: int = 0
    answering: Callable[[], AbstractContextManager[None]] = nullcontext
    turns: int = 0
