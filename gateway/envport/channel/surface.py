"""The WebSocket of the rollout channel, behind the gateway's gate."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from starlette.types import Receive, Scope, Send

from envport.access import Principal
from envport.channel.connection import ChannelConnection
from envport.channel.openings import NamedOpenings
from envport.episodes import EpisodeTable
from envport.errors import Unauthenticated
from envport.types import CHANNEL_LINES

__all__ = ["CHANNEL_PATH", "ChannelSurface"]

CHANNEL_PATH = "/rollouts"
"""Where the channel is."""

_CHECK_SECONDS = 1.0


class ChannelSurface:
    """ASGI application of the rollout channel.

    Args:
        table: The episodes.
        authenticate: The principal of an `Authorization` header; raises `Unauthenticated`.
    """

    def __init__(self, table: EpisodeTable, authenticate: Callable[[str | None], Principal | None]):
        self._table = table
        self._authenticate = authenticate
        self._openings = NamedOpenings(table)

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Run what connections leave behind."""
        try:
            yield
        finally:
            await self._openings.stop()

    def require(self, principal: Principal) -> None:
        """Check that a principal may connect.

        Raises:
            PermissionDenied: It lacks a scope.
        """
        principal.require("play")
        if principal.episode is None:
            principal.require("control")

    async def handle(
        self, principal: Principal, authorization: str | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve a connection.

        Args:
            principal: Who connects. Its permission has been checked already.
            authorization: Its `Authorization` header, which has to stay valid.
            scope: The ASGI scope of the WebSocket.
            receive: The ASGI receive channel.
            send: The ASGI send channel.
        """
        checked = time.monotonic()

        def admitted() -> bool:
            nonlocal checked
            if (now := time.monotonic()) - checked < _CHECK_SECONDS:
                return True
            checked = now
            try:
                return self._authenticate(authorization) == principal
            except Unauthenticated:
                return False

        lines = CHANNEL_LINES in scope.get("subprotocols", ())
        connection = ChannelConnection(self._table, self._openings, principal, admitted, receive, send, lines=lines)
        await connection.serve()
