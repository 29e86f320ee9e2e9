"""The servers that are measured, each in a process of its own, under one set of uvicorn settings."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, get_args

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp, Receive, Scope, Send

from envport.app import Gateway
from envport.bench.targets import ServerKind
from envport.registry import load

__all__ = ["main"]

_ECHO_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "What to say back."}},
    "required": ["message"],
}


class BareEcho:
    """Floor: reads JSON-RPC, answers JSON-RPC, and knows nothing of MCP."""

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Nothing runs beside the requests."""
        yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a call."""
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        call = json.loads(body)
        content = [{"type": "text", "text": call["params"]["arguments"]["message"]}]
        answer = json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": {"content": content}}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


class MinimalMcp:
    """Floor: the least that the SDK needs to serve one tool. It validates and records nothing, and has no routes."""

    def __init__(self) -> None:
        server: Server[Any] = Server(
            "minimal",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            get_tool_input_schema={"echo": _ECHO_SCHEMA}.get,
        )
        self._manager = StreamableHTTPSessionManager(server, json_response=True)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Run the session manager."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._manager.asgi_app(scope, receive, send)

    async def _list_tools(
        self, ctx: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="echo", input_schema=_ECHO_SCHEMA)])

    async def _call_tool(
        self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        message = (params.arguments or {})["message"]
        return types.CallToolResult(content=[types.TextContent(type="text", text=message)])


class _Floor:
    """Gives a floor the ASGI lifespan that the gateway has of itself."""

    def __init__(self, app: BareEcho | MinimalMcp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._app(scope, receive, send)
            return
        await receive()
        async with self._app.run():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


_APPS: dict[ServerKind, Callable[[], ASGIApp]] = {
    "gateway": lambda: Gateway([load("echo")]),
    "minimal": lambda: _Floor(MinimalMcp()),
    "bare": lambda: _Floor(BareEcho()),
}


class _AnnouncingServer(uvicorn.Server):
    """Prints its port once it answers, and stops when whoever started it is gone."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        assert sockets is not None
        print(sockets[0].getsockname()[1], flush=True)
        threading.Thread(target=self._stop_with_parent, daemon=True).start()

    def _stop_with_parent(self) -> None:
        sys.stdin.read()
        self.should_exit = True


def main(kind: str) -> None:
    """Serve on a free port of loopback until standard input ends."""
    if kind not in get_args(ServerKind):
        raise SystemExit(f"there is no server {kind!r}; there are {', '.join(get_args(ServerKind))}")
    app = _APPS[kind]()
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        _AnnouncingServer(config).run([listening])


if __name__ == "__main__":
    main(sys.argv[1])
