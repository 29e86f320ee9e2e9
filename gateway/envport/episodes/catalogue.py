"""What can be played: environments and their tasks, as clients are told of them."""

from __future__ import annotations

from typing import Any

import anyio.lowlevel

from envport.definition import EnvironmentDefinition
from envport.episodes.limits import Limits
from envport.episodes.requests import reading
from envport.types import EnvironmentInfo, EpisodeLimits, Split, TaskPage

__all__ = ["environment_info", "task_page"]


def environment_info(
    spec: EnvironmentDefinition, limits: Limits, mcp_url: str = "", *, replicated: bool = False
) -> EnvironmentInfo:
    """The description of an environment.

    Args:
        spec: The environment.
        limits: Limits on episodes.
        mcp_url: Where players start episodes of it, if it is served.
        replicated: Whether the limits are those of one of several hosts.
    """
    bounds = limits.bounds(spec)
    return EnvironmentInfo(
        name=spec.name,
        version=spec.cls.version,
        description=spec.description,
        instructions=spec.instructions,
        options=dict(spec.options),
        splits=[Split(name=name, num_tasks=spec.num_tasks(name)) for name in spec.splits],
        limits=EpisodeLimits(
            max_steps=spec.prototype.max_steps,
            max_episodes=limits.episodes(spec),
            places=None if replicated else limits.places(spec),
            idle_seconds=limits.idle_seconds,
            max_seconds=limits.seconds(spec),
            call_seconds=bounds.call_seconds,
            score_seconds=bounds.score_seconds,
            memory_mb=bounds.memory_mb,
            cpu_seconds=bounds.cpu_seconds,
            max_processes=bounds.max_processes,
        ),
        reward=spec.cls.reward,
        scored=spec.scored,
        fingerprint=spec.fingerprint,
        source_fingerprint=spec.source_fingerprint,
        tools=spec.listing,
        tools_vary=spec.tools_vary,
        mcp_url=mcp_url,
    )


async def task_page(spec: EnvironmentDefinition, split: str, offset: int, limit: int) -> TaskPage:
    """A page of the tasks of a split, with their tools if these depend on the task.

    Args:
        spec: The environment.
        split: Name of the split.
        offset: Index of the first task.
        limit: How many tasks at most.

    Raises:
        UnknownTask: There is no such split.
        InvalidEnvironment: The environment cannot tell the tools of a task.
        InvalidRequest: The environment refuses one of the tasks.
        EpisodeFailed: The system that the tasks come from has failed.
    """
    total = spec.num_tasks(split)
    indices = range(offset, min(offset + limit, total))
    tasks = await reading(spec, lambda: [spec.task(split, index) for index in indices])
    fingerprints: list[str] = []
    listings: dict[str, list[dict[str, Any]]] = {}
    for task in tasks if spec.tools_vary else ():
        tools = spec.toolset_for(task)
        fingerprints.append(tools.fingerprint)
        listings[tools.fingerprint] = tools.listing
        # Checking the schemas of new tools takes a while, and the event loop has other work to do.
        await anyio.lowlevel.checkpoint()
    return TaskPage(split=split, total=total, offset=offset, tasks=tasks, fingerprints=fingerprints, listings=listings)
