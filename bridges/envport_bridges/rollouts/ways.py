"""The interface of the ways to a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from envport.types import Choice, EpisodeInfo, LegalCall
from envport_bridges.rollouts.backend import CallReply, RolloutEpisode

__all__ = ["GatewayWay"]


class GatewayWay(Protocol):
    """Sends each request once.

    Every method raises the gateway's error as the same class, and `GatewayUnreachable` if there was no answer.
    """

    async def open(self, choice: Choice, labels: Mapping[str, str], name: str) -> RolloutEpisode:
        """Open an episode whose results contain rewards.

        Args:
            choice: Its task and seed.
            labels: Its labels.
            name: Name of the opening, where the way has names: one that is sent again opens no second episode.
        """
        ...

    async def call(self, episode: RolloutEpisode, tool: str, arguments: Mapping[str, Any], call_id: str) -> CallReply:
        """Call a tool. A call that is sent again with the same id is played once."""
        ...

    async def legal_calls(self, episode: RolloutEpisode) -> list[LegalCall] | None:
        """The calls that make sense now."""
        ...

    async def keep_alive(self, episode: RolloutEpisode) -> None:
        """Restart the idle time of an episode."""
        ...

    async def finish(self, episode: RolloutEpisode) -> EpisodeInfo:
        """End an episode, and wait for its reward."""
        ...

    async def close(self, episode: RolloutEpisode) -> None:
        """Close an episode."""
        ...

    async def stop(self) -> None:
        """Close the connections."""
        ...
