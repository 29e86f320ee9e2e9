"""Answers plain messages without the SDK, in the same words as the SDK would.

They are nearly all of a gateway's traffic, and the SDK needs several times as long as the rest of a call. Whatever is
not plain takes the way through the SDK, and so does everything if the gateway is started with `--sdk-only`.
"""

from __future__ import annotations

import logging
from typing import Any

from mcp_types import INTERNAL_ERROR, SERVER_INFO_META_KEY
from pydantic_core import to_json
from starlette.types import Message, Receive, Send

from envport.errors import UnknownTool
from envport.mcp.plain import PlainHeaders, PlainMessage
from envport.mcp.players import Player, ToolRequest, player_with_session
from envport.mcp.servers import EnvironmentServer
from envport.telemetry.tracing import traced

__all__ = ["DirectAnswers"]

logger = logging.getLogger(__name__)

_CONTENT_TYPE = (b"content-type", b"application/json")


class DirectAnswers:
    """The direct answers of one server.

    Args:
        server: The server.
        streaming: The tools that report progress; `None` for all. Their calls are left to the SDK, which keeps a
            connection busy while they run.
    """

    def __init__(self, server: EnvironmentServer, streaming: frozenset[str] | None):
        self._server = server
        self._streaming = streaming
        self._server_info = server.server_info

    async def answer(
        self,
        headers: PlainHeaders,
        message: PlainMessage,
        player: Player,
        receive: Receive,
        send: Send,
        session: str | None = None,
    ) -> bool:
        """Answer a message, and return true; or return false if the SDK has to do it.

        Args:
            headers: The headers of its request.
            message: The message.
            player: The caller.
            receive: The ASGI receive channel, whose body has been read.
            send: The ASGI send channel.
            session: Id of the session that the message is of.
        """
        # The SDK makes spans of its own.
        if traced():
            return False
        body = self._listing(message) if message.tool is None else await self._call(headers, message, player, receive)
        if body is None:
            return False
        fields = [_CONTENT_TYPE, (b"content-length", b"%d" % len(body))]
        if session is not None:
            fields.append((b"mcp-session-id", session.encode("latin-1")))
        start: Message = {"type": "http.response.start", "status": 200, "headers": fields}
        await send(start)
        await send({"type": "http.response.body", "body": body})
        return True

    def _listing(self, message: PlainMessage) -> bytes | None:
        listing = self._server.written_listing
        return _written(message, b"result", listing) if listing is not None else None

    async def _call(
        self, headers: PlainHeaders, message: PlainMessage, player: Player, receive: Receive
    ) -> bytes | None:
        tool = message.tool
        assert tool is not None
        if self._streaming is None or tool in self._streaming or self._server.reads_headers(tool):
            return None
        if not headers.modern:
            player = player_with_session(player, headers.session)
        try:
            result = await self._server.call(ToolRequest(player, message.meta, receive), tool, message.arguments)
            return _written(message, b"result", to_json(self._of_era(result, modern=headers.modern)))
        except UnknownTool:
            # Nothing has been played.
            return None
        except Exception:
            logger.exception("a tool call could not be answered")
            return _written(message, b"error", to_json({"code": INTERNAL_ERROR, "message": "Internal server error"}))

    def _of_era(self, result: dict[str, Any], *, modern: bool) -> dict[str, Any]:
        if modern:
            result["_meta"] = {**result["_meta"], SERVER_INFO_META_KEY: self._server_info}
        else:
            del result["resultType"]
        return result


def _written(message: PlainMessage, key: bytes, value: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (to_json(message.id), key, value)
