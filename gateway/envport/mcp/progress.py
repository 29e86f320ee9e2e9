"""Sends the progress of a running tool to the client that asked for it. The tool may run in any thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from envport.episodes import CallResult, EpisodeTable, Found, call_id_of, while_connected
from envport.errors import EnvportError
from envport.mcp.players import ToolRequest

__all__ = ["PROGRESS_TOKEN", "playing"]

PROGRESS_TOKEN = "progressToken"
"""The key of `_meta` with which a client asks for progress."""

_Report = tuple[float, float | None, str | None]

_BUFFERED = 256


async def playing(
    request: ToolRequest, table: EpisodeTable, found: Found, tool: str, arguments: Mapping[str, Any]
) -> CallResult:
    """Call a tool of an episode, and send its progress to the client if the client asked for it.

    Raises:
        InvalidRequest: The call id that the client sent is malformed.
        CallerLeft: The client disconnected. If the call had begun, it was finished and recorded.
        EnvportError: Any error that the call raised.
    """
    if table.at_once(found):
        return await _playing(request, table, found, tool, arguments)
    work = partial(_playing, request, table, found, tool, arguments)
    return await while_connected(request.receive, work, leaving=request.leaving)


async def _playing(
    request: ToolRequest, table: EpisodeTable, found: Found, tool: str, arguments: Mapping[str, Any]
) -> CallResult:
    call_id = call_id_of(request.meta)
    reporting, report = found.spec.progress_tools, request.report
    if report is None or (reporting is not None and tool not in reporting):
        return await table.call(found, tool, arguments, None, call_id)
    loop = asyncio.get_running_loop()
    sender, receiver = anyio.create_memory_object_stream[_Report](_BUFFERED)

    def send(report: _Report) -> None:
        # If the tool reports faster than the client reads, drop reports. The tool must not have to wait.
        try:
            sender.send_nowait(report)
        except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            return

    def sink(progress: float, total: float | None = None, message: str | None = None) -> None:
        loop.call_soon_threadsafe(send, (progress, total, message))

    result: CallResult | EnvportError | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_forward, report, receiver)
        try:
            result = await table.call(found, tool, arguments, sink, call_id)
        except EnvportError as error:
            # Raised after the task group, which would wrap it in an exception group.
            result = error
        finally:
            # The tool's last reports are in the loop's queue already. Closing comes after them.
            loop.call_soon(sender.close)
    if isinstance(result, EnvportError):
        raise result
    assert result is not None
    return result


async def _forward(report: Callable[..., Awaitable[None]], receiver: MemoryObjectReceiveStream[_Report]) -> None:
    async with receiver:
        async for progress, total, message in receiver:
            await report(progress, total, message)
