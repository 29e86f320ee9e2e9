"""Episodes as a store records them, of a gateway that has none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from mcp import Client as McpClient

from envport import Client
from envport.trajectories.recorded import RecordedEpisode
from envport.types import text_prompt

Calls = Sequence[tuple[str, dict[str, Any]]]


def recorded_at(url: str, handle: str, calls: Calls = ()) -> RecordedEpisode:
    """An episode of a gateway.

    Args:
        url: The gateway.
        handle: The episode.
        calls: Calls to make first.
    """
    asyncio.run(_play(f"{url}/episodes/{handle}/mcp", calls))
    with Client(url) as client:
        trajectory = client.trajectory(handle)
        info = client.environment(trajectory.episode.environment)
    prompt = text_prompt(trajectory.episode.task, info.instructions)
    return RecordedEpisode(trajectory, prompt, info.tools)


async def _play(url: str, calls: Calls) -> None:
    if not calls:
        return
    async with McpClient(url) as player:
        for tool, arguments in calls:
            await player.call_tool(tool, arguments)
