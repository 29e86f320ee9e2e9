"""A connection to an upstream server, from an episode's reset to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import CONNECTION_CLOSED, PARSE_ERROR, REQUEST_TIMEOUT, CallToolResult

from envport import Observation, Progress, UpstreamLost
from envport_envs.mcp_servers.sources import Address, Command, EpisodeFolders

__all__ = ["Upstream"]

ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)

_LOST = (CONNECTION_CLOSED, REQUEST_TIMEOUT, PARSE_ERROR)
_ANSWERED = 400
_MOST_ERRORS = 4_000
_CONNECT_SECONDS, _READ_SECONDS = 30.0, 3_600.0


class Upstream:
    """A server that is connected, in an asyncio task of its own: if its transport breaks, that task ends, and no other.

    Made by `open`.
    """

    def __init__(self) -> None:
        self._client = cast("Client", None)
        self._watch: _Watch | None = None
        self._ready = asyncio.Event()
        self._closing = asyncio.Event()
        self._held = cast("asyncio.Task[None]", None)

    @classmethod
    async def open(
        cls, source: Command | Address, folders: EpisodeFolders, seed: int, secrets: Mapping[str, str]
    ) -> Upstream:
        """Connect to a server. A command is started.

        Args:
            source: The server.
            folders: The folders of the episode.
            seed: Fills the placeholder `{seed}`.
            secrets: Environment variables of a command, and values of placeholders of an address.

        Raises:
            UpstreamLost: It cannot be started or reached, or does not speak MCP.
            InvalidOption: A placeholder has no value.
        """
        upstream = cls()
        upstream._held = asyncio.create_task(upstream._hold(source, folders, seed, secrets))
        try:
            await upstream._while_held(upstream._ready.wait())
        except BaseException:
            await upstream.close()
            raise
        return upstream

    async def close(self) -> None:
        """End the connection, and a server that was started with all its processes."""
        self._closing.set()
        if not self._ready.is_set():
            self._held.cancel()
        await asyncio.wait({self._held})
        if not self._held.cancelled() and (error := self._held.exception()) is not None:
            # It is not needed any more, so it may end as it likes.
            logger.debug("an MCP server did not end in order", exc_info=error)

    async def _hold(
        self, source: Command | Address, folders: EpisodeFolders, seed: int, secrets: Mapping[str, str]
    ) -> None:
        try:
            made = (
                _started(source, folders, seed, secrets) if isinstance(source, Command) else _at(source, seed, secrets)
            )
            async with made as (self._client, self._watch):
                self._ready.set()
                await self._closing.wait()
        except (OSError, MCPError, httpx2.HTTPError, ExceptionGroup) as error:
            what = "started" if isinstance(source, Command) else "reached"
            why = (
                "the connection to the MCP server broke"
                if self._ready.is_set()
                else f"the MCP server could not be {what}"
            )
            raise UpstreamLost(f"{why}: {_why(error)}{_told(folders)}") from error

    async def _while_held(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """The result of some work, unless the connection ends before.

        Raises:
            UpstreamLost: It did.
        """
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._held}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._held.result()
                raise UpstreamLost("the connection to the MCP server has ended")
            return task.result()
        finally:
            task.cancel()

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
                page = await self._while_held(self._client.list_tools(cursor=cursor, cache_mode="bypass"))
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
            report = _reporting(progress) if progress is not None else None
            result = await self._while_held(self._client.call_tool(tool, dict(arguments), progress_callback=report))
        except MCPError as error:
            if error.code in _LOST or (self._watch is not None and self._watch.failed):
                raise self._lost(tool, error) from error
            # The server is there, and has answered: an agent that is connected to it reads this.
            return Observation(content=({"type": "text", "text": error.message},)), True
        except Exception as error:
            raise self._lost(tool, error) from error
        return _observation(result), bool(result.is_error)

    def _lost(self, what: str, error: Exception) -> UpstreamLost:
        if isinstance(error, UpstreamLost):
            return error
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
async def _started(
    command: Command, folders: EpisodeFolders, seed: int, secrets: Mapping[str, str]
) -> AsyncGenerator[tuple[Client, None]]:
    words, variables = command.program(folders, seed, secrets)
    parameters = StdioServerParameters(command=words[0], args=words[1:], env=variables, cwd=folders.work)
    with folders.errors.open("w", encoding="utf-8") as errors:
        async with Client(stdio_client(parameters, errors)) as client:
            yield client, None


@asynccontextmanager
async def _at(address: Address, seed: int, secrets: Mapping[str, str]) -> AsyncGenerator[tuple[Client, _Watch]]:
    filled, watch = address.filled(seed, secrets), _Watch()
    timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS)
    hooks = {"response": [watch.see]}
    http = httpx2.AsyncClient(headers=dict(filled.headers), timeout=timeout, event_hooks=hooks)
    transport = streamable_http_client(filled.url, http_client=http)
    try:
        async with http, Client(transport, mode=address.era) as client:
            yield client, watch
    except (MCPError, ExceptionGroup) as error:
        if not watch.failed:
            raise
        raise ConnectionError(f"{_why(error)} (HTTP status {watch.status})") from error


def _observation(result: CallToolResult) -> Observation:
    content = tuple(block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content)
    structured: Any = result.structured_content
    return Observation(content=content, structured_content=structured)


def _reporting(sink: Progress) -> ProgressFnT:
    async def report(progress: float, total: float | None, message: str | None) -> None:
        sink(progress, total, message)

    return report


def _why(error: BaseException) -> str:
    """What went wrong, without the groups in which task groups raise it."""
    if isinstance(error, BaseExceptionGroup):
        return _why(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return str(error) or type(error).__name__


def _told(folders: EpisodeFolders) -> str:
    """The end of what a server wrote to standard error."""
    if not folders.errors.exists():
        return ""
    told = folders.errors.read_bytes()[-_MOST_ERRORS:].decode("utf-8", "replace").strip()
    return f"\n{told}" if told else ""
