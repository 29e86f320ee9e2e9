"""Answers plain messages without the SDK, in the same words as the SDK would.

They are nearly all of a gateway's traffic, and the SDK needs several times as long as the rest of a call. Whatever is
not plain takes the way through the SDK, and so does everything if the gateway is started with `--sdk-only`.
"""

from __future__ import annotations

import logging
from typing import Any

from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp_types import INTERNAL_ERROR, SERVER_INFO_META_KEY
from pydantic_core import to_json
from starlette.types import Message, Receive, Send

from envport.episodes import Leaving
from envport.errors import CallerLeft, UnknownTool
from envport.mcp.plain import PlainHeaders, PlainMessage
from envport.mcp.players import Player, ToolRequest, player_with_session
from envport.mcp.servers import EnvironmentServer

__all__ = ["DirectAnswers"]

logger = logging.getLogger(__name__)

_BROKEN = to_json({"code": INTERNAL_ERROR, "message": "Internal server error"})
_CANCELLED = to_json({"code": REQUEST_CANCELLED, "message": "Request cancelled"})
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
        leaving: Leaving | None = None,
    ) -> bool:
        """Answer a message, and return true; or return false if the SDK has to do it.

        Args:
            headers: The headers of its request.
            message: The message.
            player: The caller.
            receive: The ASGI receive channel, whose body has been read.
            send: The ASGI send channel.
            leaving: Through which the message can be cancelled; `None` if it does not belong to a session.
        """
        if message.tool is None:
            body = self._listing(message)
        else:
            body = await self._call(headers, message, player, receive, leaving)
        if body is None:
            return False
        fields = [_CONTENT_TYPE, (b"content-length", b"%d" % len(body))]
        if leaving is not None and headers.session is not None:
            fields.append((b"mcp-session-id", headers.session.encode("latin-1")))
        start: Message = {"type": "http.response.start", "status": 200, "headers": fields}
        await send(start)
        await send({"type": "http.response.body", "body": body})
        return True

    def _listing(self, message: PlainMessage) -> bytes | None:
        listing = self._server.written_listing
        return _written(message, b"result", listing) if listing is not None else None

    async def _call(
        self,
        headers: PlainHeaders,
        message: PlainMessage,
        player: Player,
        receive: Receive,
        leaving: Leaving | None,
    ) -> bytes | None:
        tool = message.tool
        assert tool is not None
        if self._streaming is None or tool in self._streaming or self._server.reads_headers(tool):
            return None
        if not headers.modern:
            player = player_with_session(player, headers.session)
        try:
            request = ToolRequest(player, message.meta, receive, leaving=leaving)
            result = await self._server.call(request, tool, message.arguments)
            if leaving is not None and leaving.said and result["_meta"].get("envport/error") == CallerLeft.code:
                return _written(message, b"error", _CANCELLED)
            return _written(message, b"result", to_json(self._of_era(result, modern=headers.modern)))
        except UnknownTool:
            # Nothing has been played.
            return None
        except Exception:
            logger.exception("a tool call could not be answered")
            return _written(message, b"error", _BROKEN)

    def _of_era(self, result: dict[str, Any], *, modern: bool) -> dict[str, Any]:
        if modern:
            result["_meta"] = {**result["_meta"], SERVER_INFO_META_KEY: self._server_info}
        else:
            del result["resultType"]
        return result


def _written(message: PlainMessage, key: bytes, value: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (to_json(message.id), key, value)
