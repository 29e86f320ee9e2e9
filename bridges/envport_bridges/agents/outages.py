"""Whether a gateway was away while an agent played: an agent that fails then is not to blame."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from envport.errors import EnvportError
from envport_bridges.rollouts.backend import EpisodeSource

__all__ = ["OutageWatch"]

_INTERVAL = 0.5
_PATIENCE = 10.0


class OutageWatch:
    """Asks a gateway again and again whether it is there.

    Args:
        source: The gateway.
    """

    def __init__(self, source: EpisodeSource):
        self._source = source
        self._last_outage = float("-inf")

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Watch in the background."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _watch(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(_INTERVAL)

    async def look(self) -> None:
        """Ask once."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._source.describe()
        except (EnvportError, TimeoutError):
            self._last_outage = time.monotonic()

    def away_since(self, when: float) -> bool:
        """Whether the gateway was away at some time since then.

        Args:
            when: A time of `time.monotonic`.
        """
        return self._last_outage >= when
