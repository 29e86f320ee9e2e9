"""Looking up episodes: those that the table knows, and those that only the trajectory store remembers."""

from __future__ import annotations

from collections.abc import Mapping

from envport.episodes.base import EpisodeTable
from envport.errors import UnknownEpisode
from envport.trajectories import Archive, EpisodeFilter, read_recorded
from envport.types import EpisodeInfo, Trajectory

__all__ = ["RecordedEpisodes"]


class RecordedEpisodes:
    """The episodes of a table, and those that it no longer remembers but a store has.

    Args:
        table: The table.
        archive: The recorded episodes, if there is a store.
    """

    def __init__(self, table: EpisodeTable, archive: Archive | None):
        self._table = table
        self._archive = archive

    async def info(self, handle: str, principal: str) -> EpisodeInfo:
        """The state of an episode.

        Raises:
            UnknownEpisode: It never existed, was deleted from the store, or belongs to another principal.
            StoreUnavailable: Only the store remembers it, and the store cannot be read now.
        """
        try:
            return await self._table.info(handle, principal)
        except UnknownEpisode:
            if self._archive is None:
                raise
        return (await self.trajectory(handle, principal)).episode

    async def list_episodes(self, principal: str, labels: Mapping[str, str], limit: int) -> list[EpisodeInfo]:
        """The principal's episodes that have these labels, the newest first.

        Args:
            principal: Name of the principal.
            labels: The labels that an episode has to have, with their values.
            limit: The most episodes to return.
        """
        known = await self._table.list_episodes(principal, labels, limit)
        if self._archive is None:
            return known
        page = await self._archive.find(EpisodeFilter(principal=principal, labels=labels), limit)
        handles = {info.episode_id for info in known}
        found = [*known, *(one.info for one in page.episodes if one.info.episode_id not in handles)]
        return sorted(found, key=lambda info: info.created_at, reverse=True)[:limit]

    async def trajectory(self, handle: str, principal: str) -> Trajectory:
        """The trajectory of an episode.

        Raises:
            UnknownEpisode: It never existed, was deleted from the store, or belongs to another principal.
            StoreUnavailable: The store cannot be read now.
        """
        try:
            return await self._table.trajectory(handle, principal)
        except UnknownEpisode:
            if self._archive is None:
                raise
        return (await read_recorded(self._archive, handle, principal)).trajectory
