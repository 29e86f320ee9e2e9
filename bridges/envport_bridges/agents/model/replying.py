"""The interface between the endpoint, which speaks HTTP, and what answers its requests."""

from __future__ import annotations

from typing import Protocol

from envport_bridges.agents.apis.requests import ModelReply, ModelRequest
from envport_bridges.agents.model.sessions import ModelSession

__all__ = ["ReplySource"]


class ReplySource(Protocol):
    """Answers the requests of all sessions. Called in the event loop of the endpoint."""

    async def reply(self, session: ModelSession, request: ModelRequest, *, resent: bool | None) -> ModelReply:
        """The next turn of the model.

        If the client leaves, the endpoint cancels this, and the turn counts as never seen.

        Args:
            session: Who asks.
            request: The request.
            resent: Whether the client says that it sent the same request before (SDKs count their attempts in the
                header `x-stainless-retry-count`); `None` if it does not say.

        Raises:
            RequestRefused: It is not answered with a turn.
        """
        ...
