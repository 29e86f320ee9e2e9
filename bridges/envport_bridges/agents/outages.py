"""Whether a gateway was away while an agent played: an agent that fails then is not to blame."""

from __future__ import annotations

import asyncio
import time

from envport.errors import EnvportError
from envport_bridges.rollouts.connection import Connection

__all__ = ["OutageWatch"]

_INTERVAL = 0.5
_PATIENCE = 10.0


class OutageWatch:
    """Asks a gateway again and again whether it is there.

    Args:
        connection: The connection to the gateway.
    """

    def __init__(self, connection: Connection):
        self._connection = connection
        self._last_outage = float("-inf")

    async def watch(self) -> None:
        """Ask until this is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_INTERVAL)

    async def look(self) -> None:
        """Ask once."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._connection.loop.run_async(self._connection.source.describe())
        except (EnvportError, TimeoutError):
            self._last_outage = time.monotonic()

    def away_since(self, when: float) -> bool:
        """Whether the gateway was away at some time since then.

        Args:
            when: A time of `time.monotonic`.
        """
        return self._last_outage >= when
