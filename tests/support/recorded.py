"""Episodes that are recorded in a store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from envport.episodes import Episode, Episodes, Limits, OpenRequest
from envport.registry import load
from envport.trajectories import Archive
from envport.trajectories.recorder import DatabaseTrajectories
from envport.types import Choice


@asynccontextmanager
async def table_on(where: str | Path, *references: str, **settings: Any) -> AsyncIterator[tuple[Episodes, Archive]]:
    """A table whose episodes are recorded in a store. It forgets ended episodes soon."""
    store = DatabaseTrajectories(where, **settings)
    specs = {spec.name: spec for spec in map(load, references or ("catch", "counter", "echo", "showcase"))}
    table = Episodes(specs, Limits(max_ended=1), trajectories=store)
    assert store.archive is not None
    async with table.run():
        yield table, store.archive


async def opened(
    table: Episodes, environment: str = "counter", principal: str = "local", seed: int = 7, **labels: str
) -> Episode:
    """An episode."""
    return await table.open_episode(OpenRequest(environment, principal, Choice(seed=seed), labels=labels))


async def played(table: Episodes, *tools: str, environment: str = "counter", **labels: str) -> str:
    """Open an episode, make calls without arguments, close it, and return its handle."""
    episode = await opened(table, environment, **labels)
    for tool in tools:
        await episode.call(tool, {})
    await table.close(episode.handle, "local")
    return episode.handle
