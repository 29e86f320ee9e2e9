"""What was sampled for a session: a tree of turns, each with the ids of its context."""

from __future__ import annotations

from dataclasses import dataclass, field

from envport_bridges.agents.apis.requests import ModelReply

__all__ = ["CallTree", "ModelCall"]


@dataclass(eq=False)
class ModelCall:
    """To be filled in."""

    reply: ModelReply


@dataclass
class CallTree:
    """To be filled in."""

    calls: list[ModelCall] = field(default_factory=list[ModelCall])
