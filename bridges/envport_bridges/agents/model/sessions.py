"""Who asks the model: a session has a token of its own, and all that was sampled for it."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from envport_bridges.agents.apis.requests import TokenUsage
from envport_bridges.agents.model.calls import CallTree

__all__ = ["SESSION_TOKEN", "ModelSession", "SessionTotals"]

SESSION_TOKEN = "epm_"
"""Prefix of session tokens at a served model. It tells the token of an ended session from a made-up key."""


@dataclass
class SessionTotals:
    """The tokens of all turns that were sampled for a session, whether anybody saw them or not.

    Attributes:
        turns: How many turns.
        prompt: Tokens of their contexts.
        completion: Tokens that were sampled.
        cached: Tokens of contexts that were taken over from an earlier turn.
    """

    turns: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0

    def add(self, usage: TokenUsage) -> None:
        """Count a turn."""
        self.turns += 1
        self.prompt += usage.prompt
        self.completion += usage.completion
        self.cached += usage.cached


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
        repeats: Whether a request that equals an earlier one counts as the same one, if its client does not say so.
        totals: The tokens that were used for it.
        failed: How many of its requests had no answer, by a fault of the model or its server.
        failing: Whether the latest one that was worked on had none.
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
    repeats: bool = True
    totals: SessionTotals = field(default_factory=SessionTotals)
    failed: int = 0
    failing: bool = False
