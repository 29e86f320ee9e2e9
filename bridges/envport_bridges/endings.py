"""The end of an episode, for surfaces that speak the protocols of other frameworks."""

from __future__ import annotations

from envport.episodes import EpisodeTable, Found
from envport.errors import EpisodeFailed
from envport.types import EpisodeInfo

__all__ = ["finish_unless_lost"]


async def finish_unless_lost(table: EpisodeTable, found: Found) -> EpisodeInfo:
    """End an episode, unless it has ended, and wait until its reward is known.

    Args:
        table: The episodes.
        found: The episode.

    Raises:
        EpisodeFailed: It is lost, also if scoring its final state failed. It has no reward.
        UnknownEpisode: It is forgotten.
    """
    info = await table.finish(found.handle, found.principal)
    if info.outcome is not None and info.outcome.lost:
        owner = "environment" if info.outcome.fault == "environment" else "infrastructure"
        raise EpisodeFailed(f"The episode was lost: {info.outcome.message}", owner, info.outcome.reason)
    return info
