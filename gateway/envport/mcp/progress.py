"""Progress of a running tool, from whatever thread it runs in to the client that asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server.context import ServerRequestContext

from envport.episodes import CallResult, Episode
from envport.errors import EnvportError

__all__ = ["playing"]

_Report = tuple[float, float | None, str | None]

_BUFFERED = 256


async def playing(
    ctx: ServerRequestContext[Any, Any], episode: Episode, tool: str, arguments: Mapping[str, Any]
) -> CallResult:
    """Call a tool of an episode, sending its progress to the client if the client asked for it."""
    spec = episode.spec.tools.get(tool)
    if spec is None or spec.progress is None or ctx.meta is None or "progress_token" not in ctx.meta:
        return await episode.call(tool, arguments)
    loop = asyncio.get_running_loop()
    sender, receiver = anyio.create_memory_object_stream[_Report](_BUFFERED)

    def send(report: _Report) -> None:
        # A tool that reports faster than the client reads loses reports, not time.
        try:
            sender.send_nowait(report)
        except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            return

    def sink(progress: float, total: float | None = None, message: str | None = None) -> None:
        loop.call_soon_threadsafe(send, (progress, total, message))

    result: CallResult | EnvportError | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_forward, ctx, receiver)
        try:
            result = await episode.call(tool, arguments, sink)
        except EnvportError as error:
            # Raised below, because a task group would wrap it.
            result = error
        finally:
            # Reports that were made before the tool returned are in the loop's queue ahead of this.
            loop.call_soon(sender.close)
    if isinstance(result, EnvportError):
        raise result
    assert result is not None
    return result


async def _forward(ctx: ServerRequestContext[Any, Any], receiver: MemoryObjectReceiveStream[_Report]) -> None:
    async with receiver:
        async for progress, total, message in receiver:
            await ctx.session.report_progress(progress, total, message)
