"""A player's access to an episode: its tools and calls, over MCP only."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from envport.blocks import ContentBlock, text_of
from envport.client.certificates import trusted
from envport.errors import GatewayUnreachable

__all__ = ["Seat", "SeatReply"]

_OVER = frozenset({"episode_over", "unknown_episode", "episode_failed"})
_UNKNOWN_TOOL = -32602


@dataclass(frozen=True)
class SeatReply:
    """The answer to a call.

    Attributes:
        content: MCP content blocks.
        is_error: The gateway or the environment refused the call.
        over: The episode accepts no more calls.
    """

    content: tuple[ContentBlock, ...]
    is_error: bool
    over: bool

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(map(text_of, self.content))


class Seat:
    """An open MCP connection to one episode, made by `Seat.at`.

    Attributes:
        tools: The tools, as the gateway lists them.
        calls: How many calls were made.
        over: Whether the episode accepts no more calls.
    """

    def __init__(self, client: Client, tools: list[dict[str, Any]]):
        self._client = client
        self.tools = tools
        self.calls = 0
        self.over = False

    @classmethod
    @asynccontextmanager
    async def at(cls, url: str, token: str | None, patience: float = 120.0) -> AsyncGenerator[Seat]:
        """Connect to the MCP address of an episode.

        Args:
            url: The address.
            token: Bearer token that allows playing it.
            patience: Seconds to wait for an answer.
        """
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=patience, verify=trusted()) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            listed = await client.list_tools()
            tools = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools]
            yield cls(client, tools)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> SeatReply:
        """Call a tool.

        Raises:
            GatewayUnreachable: There was no answer, or it did not come from a gateway.
        """
        self.calls += 1
        try:
            result = await self._client.call_tool(tool, dict(arguments))
        except MCPError as error:
            if error.error.code == _UNKNOWN_TOOL:
                return SeatReply(({"type": "text", "text": error.error.message},), True, self.over)
            raise GatewayUnreachable(f"the gateway did not answer a call: {error}") from error
        except (httpx2.HTTPError, OSError) as error:
            raise GatewayUnreachable(f"no answer to a call: {error or type(error).__name__}") from error
        reply = _reply(result)
        self.over = self.over or reply.over
        return reply


def _reply(result: CallToolResult) -> SeatReply:
    meta = result.meta or {}
    over = meta.get("envport/outcome") is not None or meta.get("envport/error") in _OVER
    content = tuple(block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content)
    return SeatReply(content, bool(result.is_error), over)
