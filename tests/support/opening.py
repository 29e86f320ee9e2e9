"""Opening, resetting and closing the episodes of a table, without surfaces."""

from __future__ import annotations

from typing import Any

from envport.episodes import Episode, Episodes, Found, OpenRequest
from envport.types import Choice


async def open_episode(
    table: Episodes, environment: str, principal: str = "me", reward_in_meta: bool = False, **choice: Any
) -> Episode:
    """Open an episode with a choice of `split`, `task` and `seed`."""
    return await table.open_episode(OpenRequest(environment, principal, Choice(**choice), reward_in_meta))


async def start_over(table: Episodes, episode: Episode, **choice: Any) -> None:
    """Reset an episode through its table."""
    await table.reset(Found(episode.handle, episode.principal, episode.spec), Choice(**choice))


async def close_episode(table: Episodes, episode: Episode) -> None:
    """Close an episode through its table."""
    await table.close(episode.handle, episode.principal)
