"""Exact results: the same tool listing in both protocol eras, and instructions that depend on the episode.

The SDK serializes a `tools/list` result with one model for each era, and one of them reorders the keys of a schema.
This middleware restores the original listing, so that an agent gets the listing that a policy was trained on.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types import SERVER_INFO_META_KEY
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["REFORMAT_KEY", "ExactResults", "Listing", "SameBytes"]

REFORMAT_KEY = "envport.reformat"
"""Set in the ASGI scope of a request whose answer `SameBytes` has to rewrite."""

_LISTING_TTL_MS = 300_000


@dataclass(frozen=True, slots=True)
class Listing:
    """A tool listing.

    Attributes:
        tools: The tools in wire form.
        lasting: Whether the same address always has this listing, so that clients may keep it for a while.
    """

    tools: list[dict[str, Any]]
    lasting: bool = True


class ExactResults:
    """Server middleware that sets the result of `tools/list`, and the instructions in `initialize` and discovery.

    Args:
        listing: Gives the tool listing for a request.
        server_info: The server's `Implementation`, in wire form.
        instructions: Gives the instructions for a request.
    """

    def __init__(
        self,
        listing: Callable[[ServerRequestContext[Any, Any]], Awaitable[Listing]],
        server_info: dict[str, Any],
        instructions: Callable[[ServerRequestContext[Any, Any]], Awaitable[str | None]],
    ):
        self._listing = listing
        self._meta = {SERVER_INFO_META_KEY: server_info}
        self._instructions = instructions

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Handle a message, and set the exact parts of its result."""
        result = await call_next(ctx)
        if ctx.method == "tools/call":
            return result
        if ctx.method == "tools/list":
            if ctx.request is not None:
                ctx.request.scope[REFORMAT_KEY] = True
            return self._result(await self._listing(ctx))
        if ctx.method in ("initialize", "server/discover") and isinstance(result, dict):
            instructions = await self._instructions(ctx)
            return result | {"instructions": instructions} if instructions else result
        return result

    def _result(self, listing: Listing) -> dict[str, Any]:
        return {
            "tools": listing.tools,
            "resultType": "complete",
            "ttlMs": _LISTING_TTL_MS if listing.lasting else 0,
            "cacheScope": "private",
            "_meta": self._meta,
        }

    def written(self, listing: Listing) -> bytes:
        """The result of `tools/list` as JSON, as `SameBytes` writes it."""
        return _json(self._result(listing))


class SameBytes:
    """ASGI wrapper that formats the JSON of marked answers in the same way for every transport.

    The SDK's transports differ in how they escape non-ASCII text and print floats. This wrapper writes both as
    `json.dumps` does. Marked answers are rare; other answers pass through unchanged.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        held: list[Message] = []

        async def reformat(message: Message) -> None:
            if message["type"] == "http.response.start" and scope.get(REFORMAT_KEY) and not _is_stream(message):
                # The length is known only after the body has been rewritten.
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
    """Rewrite the JSON of a body, or of the data lines of a server-sent event, as `json.dumps` writes it."""
    lines = body.split(b"\r\n")
    for index, line in enumerate(lines):
        prefix = b"data: " if line.startswith(b"data: ") else b""
        if text := line[len(prefix) :].strip():
            try:
                lines[index] = prefix + _json(json.loads(text))
            except ValueError:
                continue
    return b"\r\n".join(lines)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")
