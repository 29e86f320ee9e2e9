"""The metrics of one gateway, and their text format."""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version

import anyio
import anyio.to_thread
from prometheus_client import CollectorRegistry, Info, ProcessCollector
from prometheus_client.exposition import choose_encoder

from envport.episodes import EpisodeObserver, Episodes, EpisodeTable
from envport.metrics.loop_delay import LoopDelay
from envport.metrics.recorded import EpisodeMetrics
from envport.metrics.state import GatewayState, StateCollector

__all__ = ["Metrics"]


class Metrics:
    """The metrics of a gateway, in their own registry.

    Attributes:
        observer: The observer that counts events of episodes. Pass it to the episodes and their table.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.observer: EpisodeObserver = EpisodeMetrics(self._registry)
        self._delay = LoopDelay(self._registry)
        self._state = StateCollector()
        self._source: Callable[[], Awaitable[GatewayState]] | None = None
        self._registry.register(self._state)
        ProcessCollector(registry=self._registry)
        build = Info("envport_build", "Versions of the gateway and of what it is built on.", registry=self._registry)
        build.info({"version": version("envport"), "mcp": version("mcp"), "python": platform.python_version()})
        self._turn = anyio.Lock()

    @contextmanager
    def run(self) -> Generator[None]:
        """Measure the delay of the running event loop."""
        with self._delay.run():
            yield

    def look_at(
        self, table: EpisodeTable, episodes: Episodes | None, sessions: Callable[[], int] | None = None
    ) -> None:
        """Set the objects whose state is read for each request.

        Args:
            table: All episodes of the gateway.
            episodes: The episodes that run here; `None` if they run on other machines.
            sessions: Tells how many MCP sessions are open.
        """
        self._source = partial(GatewayState.of, table, episodes, sessions)

    async def expose(self, accept: str) -> tuple[bytes, str]:
        """All metrics as text.

        Args:
            accept: The `Accept` header, which may ask for OpenMetrics.

        Returns:
            The text and its media type.
        """
        encode, media_type = choose_encoder(accept)
        # One request at a time: each uses a thread, and reads /proc for every process of an episode.
        async with self._turn:
            if self._source is not None:
                self._state.state = await self._source()
            return await anyio.to_thread.run_sync(encode, self._registry), media_type
