"""A connection to an upstream server, from an episode's reset to its end."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import CONNECTION_CLOSED, PARSE_ERROR, REQUEST_TIMEOUT, CallToolResult

from envport import Observation, Progress, UpstreamLost
from envport_envs.mcp_servers.sources import Address, Command, Rooms

__all__ = ["Upstream", "connected"]

logger = logging.getLogger(__name__)

_LOST = (CONNECTION_CLOSED, REQUEST_TIMEOUT, PARSE_ERROR)
_ANSWERED = 400
_MOST_ERRORS = 4_000
_CONNECT_SECONDS, _READ_SECONDS = 30.0, 3_600.0


class Upstream:
    """A server that is connected.

    Args:
        client: The connection.
        watch: What HTTP said of the last answer; `None` if it is not HTTP.
    """

    def __init__(self, client: Client, watch: _Watch | None = None):
        self._client = client
        self._watch = watch

    @property
    def instructions(self) -> str:
        """What the server tells its players."""
        return self._client.instructions or ""

    async def tools(self) -> list[dict[str, Any]]:
        """All tools, as the server lists them.

        Raises:
            UpstreamLost: The server has failed.
        """
        found, cursor = list[dict[str, Any]](), None
        while True:
            try:
                page = await self._client.list_tools(cursor=cursor, cache_mode="bypass")
            except Exception as error:
                raise self._lost("tools/list", error) from error
            found += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
            if (cursor := page.next_cursor) is None:
                return found

    async def call(
        self, tool: str, arguments: Mapping[str, Any], progress: Progress | None = None
    ) -> tuple[Observation, bool]:
        """Call a tool.

        Returns:
            What it returned, and whether the server calls it an error.

        Raises:
            UpstreamLost: The server has failed, or its answer is not one that it may give.
        """

        try:
            result = await self._client.call_tool(
                tool, dict(arguments), progress_callback=_reporting(progress) if progress is not None else None
            )
        except MCPError as error:
            if error.code in _LOST or (self._watch is not None and self._watch.failed):
                raise self._lost(tool, error) from error
            # The server is there, and has answered: an agent that is connected to it reads this.
            return Observation(content=({"type": "text", "text": error.message},)), True
        except Exception as error:
            raise self._lost(tool, error) from error
        return _observation(result), bool(result.is_error)

    def _lost(self, what: str, error: Exception) -> UpstreamLost:
        http = f" (HTTP status {self._watch.status})" if self._watch is not None and self._watch.failed else ""
        return UpstreamLost(f"the MCP server failed at {what}{http}: {error}")


class _Watch:
    """Sees the status of each HTTP answer, which the SDK does not tell apart from errors that a server returns."""

    def __init__(self) -> None:
        self.status = 0

    @property
    def failed(self) -> bool:
        """Whether it was no answer of an MCP server; with 400, servers refuse single requests."""
        return self.status > _ANSWERED

    async def see(self, response: httpx2.Response) -> None:
        """Take note of an answer."""
        if response.request.method == "POST":
            self.status = response.status_code


@asynccontextmanager
async def connected(
    source: Command | Address, rooms: Rooms, seed: int, secrets: Mapping[str, str]
) -> AsyncGenerator[Upstream]:
    """Connect to a server. A command is started, and ended with all its processes on exit.

    Args:
        source: The server.
        rooms: The folders of the episode.
        seed: Fills the placeholder `{seed}`.
        secrets: Environment variables of a command, and values of placeholders of an address.

    Raises:
        UpstreamLost: It cannot be started or reached, or does not speak MCP.
    """
    began = False
    try:
        made = _started(source, rooms, seed, secrets) if isinstance(source, Command) else _at(source, seed, secrets)
        async with made as upstream:
            began = True
            yield upstream
    except (OSError, MCPError, httpx2.HTTPError, ExceptionGroup) as error:
        if began:
            # It is not needed any more, so it may end as it likes.
            logger.debug("an MCP server did not end in order", exc_info=error)
            return
        raise UpstreamLost(f"the MCP server did not start: {error}{_told(rooms)}") from error


@asynccontextmanager
async def _started(command: Command, rooms: Rooms, seed: int, secrets: Mapping[str, str]) -> AsyncGenerator[Upstream]:
    words, variables = command.program(rooms, seed, secrets)
    parameters = StdioServerParameters(command=words[0], args=words[1:], env=variables, cwd=rooms.work)
    with rooms.errors.open("w", encoding="utf-8") as errors:
        async with Client(stdio_client(parameters, errors)) as client:
            yield Upstream(client)


@asynccontextmanager
async def _at(address: Address, seed: int, secrets: Mapping[str, str]) -> AsyncGenerator[Upstream]:
    filled, watch = address.filled(seed, secrets), _Watch()
    timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS)
    hooks = {"response": [watch.see]}
    http = httpx2.AsyncClient(headers=dict(filled.headers), timeout=timeout, event_hooks=hooks)
    transport = streamable_http_client(filled.url, http_client=http)
    async with http, Client(transport, mode=address.era) as client:
        yield Upstream(client, watch)


def _observation(result: CallToolResult) -> Observation:
    content = tuple(block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content)
    structured: Any = result.structured_content
    return Observation(content=content, structured_content=structured)


def _reporting(sink: Progress) -> ProgressFnT:
    async def report(progress: float, total: float | None, message: str | None) -> None:
        sink(progress, total, message)

    return report


def _told(rooms: Rooms) -> str:
    """The end of what a server wrote to standard error."""
    if not rooms.errors.exists():
        return ""
    told = rooms.errors.read_bytes()[-_MOST_ERRORS:].decode("utf-8", "replace").strip()
    return f"\n{told}" if told else ""
