"""Results that have to be exact: the tool listing, equal in both eras, and instructions that know the episode.

The SDK shapes a `tools/list` result by a model of each era, which reorders the keys of a schema in one of them.
This middleware puts the listing back as it was made, so that what an agent gets equals what a policy was trained on.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types import SERVER_INFO_META_KEY
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["REFORMAT_KEY", "ExactResults", "SameBytes"]

REFORMAT_KEY = "envport.reformat"
"""Set in the ASGI scope of a request whose answer `SameBytes` has to write."""

_LISTING_TTL_MS = 300_000


class ExactResults:
    """Server middleware that owns the results of `tools/list`, and the instructions in `initialize` and discovery.

    Args:
        tools: The listing.
        server_info: The server's `Implementation`, in wire form.
        instructions: Gives the instructions for a request.
    """

    def __init__(
        self,
        tools: list[dict[str, Any]],
        server_info: dict[str, Any],
        instructions: Callable[[ServerRequestContext[Any, Any]], Awaitable[str | None]],
    ):
        self._listing = {
            "tools": tools,
            "resultType": "complete",
            "ttlMs": _LISTING_TTL_MS,
            "cacheScope": "private",
            "_meta": {SERVER_INFO_META_KEY: server_info},
        }
        self._instructions = instructions

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Handle a message, and put what has to be exact into its result."""
        result = await call_next(ctx)
        if ctx.method == "tools/call":
            return result
        if ctx.method == "tools/list":
            if ctx.request is not None:
                ctx.request.scope[REFORMAT_KEY] = True
            return self._listing
        if ctx.method in ("initialize", "server/discover") and isinstance(result, dict):
            instructions = await self._instructions(ctx)
            return result | {"instructions": instructions} if instructions else result
        return result


class SameBytes:
    """ASGI wrapper that writes the JSON of a marked answer in one way, whichever transport made it.

    The SDK's transports escape non-ASCII text and print floats differently; this writes both as `json.dumps`
    does. Marked answers are rare, unmarked ones pass through untouched.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        held: list[Message] = []

        async def reformat(message: Message) -> None:
            if message["type"] == "http.response.start" and scope.get(REFORMAT_KEY) and not _is_stream(message):
                # The length is known only once the body is written anew.
                held.append(message)
                return
            if message["type"] == "http.response.body" and scope.get(REFORMAT_KEY):
                body = _rewrite(message.get("body", b""))
                message = {**message, "body": body}
                if held:
                    await send(_with_length(held.pop(), len(body)))
            await send(message)

        await self._app(scope, receive, reformat)


def _is_stream(start: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in start["headers"]
    )


def _with_length(start: Message, length: int) -> Message:
    headers = [
        (name, str(length).encode() if name.lower() == b"content-length" else value) for name, value in start["headers"]
    ]
    return {**start, "headers": headers}


def _rewrite(body: bytes) -> bytes:
    """Write the JSON of a body, or of the data lines of a server-sent event, as `json.dumps` does."""
    lines = body.split(b"\r\n")
    for index, line in enumerate(lines):
        prefix = b"data: " if line.startswith(b"data: ") else b""
        if text := line[len(prefix) :].strip():
            try:
                lines[index] = prefix + json.dumps(json.loads(text), separators=(",", ":")).encode("ascii")
            except ValueError:
                continue
    return b"\r\n".join(lines)
