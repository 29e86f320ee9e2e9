"""The measured servers. Each one runs in its own process and is served in the same way as the gateway."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast, get_args

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as websocket_server

from envport.bench.targets import ServerKind
from envport.episodes import Limits
from envport.registry import load
from envport.serve_settings import Settings
from envport.serving import Service

if TYPE_CHECKING:
    from envport.app import Gateway

__all__ = ["main"]

_ECHO_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "What to say back."}},
    "required": ["message"],
}


class BareEcho:
    """Floor: reads and answers JSON-RPC, without MCP."""

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Do nothing: this server has no background work."""
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
    """Floor: the minimum that the SDK needs to serve one tool. It has no validation, no recording and no routes."""

    def __init__(self) -> None:
        server: Server[Any] = Server(
            "minimal",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            get_tool_input_schema={"echo": _ECHO_SCHEMA}.get,
        )
        self._manager = StreamableHTTPSessionManager(server, json_response=True)

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
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
    """Adds an ASGI lifespan to a floor. The gateway has its own."""

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


_FLOORS: dict[ServerKind, Callable[[], BareEcho | MinimalMcp]] = {"minimal": MinimalMcp, "bare": BareEcho}


async def _echo_frames() -> None:
    """Floor of the rollout channel: sends every WebSocket message back."""

    async def echo(socket: ServerConnection) -> None:
        async for message in socket:
            await socket.send(message)

    async with websocket_server(echo, "127.0.0.1", 0, compression=None) as server:
        print(f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}", flush=True)
        await server.serve_forever()


def _stop_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main(kind: str, limits: str = "{}") -> None:
    """Serve on a free port of the loopback address, print the address, and stop when standard input ends.

    Args:
        kind: The kind of server.
        limits: The fields of `Limits` that differ from the defaults, as JSON.
    """
    if kind not in get_args(ServerKind):
        raise SystemExit(f"there is no server {kind!r}; there are {', '.join(get_args(ServerKind))}")
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    if kind == "websocket":
        # As the gateway does.
        with asyncio.Runner(loop_factory=uvicorn.Config(BareEcho()).get_loop_factory()) as runner:
            runner.run(_echo_frames())
        return
    service = Service(Settings(port=0, limits=Limits(**json.loads(limits)), drain_seconds=0), [load("echo")], {})
    if floor := _FLOORS.get(cast("ServerKind", kind)):
        # Replace the gateway, so that the floor is served in exactly the same way.
        service.gateway = cast("Gateway", _Floor(floor()))
    service.run(lambda: print(service.url, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
