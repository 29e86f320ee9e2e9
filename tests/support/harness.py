"""Gateways on real sockets, and the ways in which players reach an episode."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx2
import uvicorn
from command_line import command
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from patience import patient

from envport import AsyncClient
from envport.app import Gateway
from envport.http.sockets import SteadyWebSocket, WholeAnswers

Era = Literal["modern", "legacy"]
Way = Literal["episode", "shared", "header", "stdio"]

ERAS: tuple[Era, ...] = ("modern", "legacy")
WAYS: tuple[Way, ...] = ("episode", "shared", "header", "stdio")
MODE = {"modern": "auto", "legacy": "legacy"}

T = TypeVar("T")


class _Server(uvicorn.Server):
    """Says when it has started."""

    def __init__(self, config: uvicorn.Config, ready: threading.Event):
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()


class RunningGateway:
    """A gateway behind uvicorn on a port of its own, in a thread of its own."""

    def __init__(self, gateway: Gateway):
        self.gateway = gateway
        # With its protocol named, asyncio sends without delay, as the gateway does.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        config = uvicorn.Config(gateway, log_level="warning", lifespan="on", http=WholeAnswers, ws=SteadyWebSocket)
        self._server = _Server(config, self._ready)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[self._socket])

        asyncio.run(serve())

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run something in the gateway's event loop."""

        async def main() -> T:
            return await work()

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(main(), self._loop).result(patient(30))

    def __enter__(self) -> RunningGateway:
        self._thread.start()
        assert self._ready.wait(patient(30)), "the gateway did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(patient(30))
        assert not self._thread.is_alive(), "the gateway did not stop"


@contextlib.contextmanager
def running(*environments: Any, **settings: Any) -> Iterator[RunningGateway]:
    with RunningGateway(Gateway(environments, **settings)) as gateway:
        yield gateway


@dataclass
class Seat:
    """A player's place at an episode, however it was reached."""

    client: Client
    way: Way
    episode_id: str | None = None
    opening: list[Any] = field(default_factory=list)

    async def call(self, tool: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
        arguments = dict(arguments or {})
        if self.way == "shared":
            arguments["episode_id"] = self.episode_id
        return await self.client.call_tool(tool, arguments, **options)


@contextlib.asynccontextmanager
async def seat(
    gateway: RunningGateway,
    way: Way,
    era: Era,
    environment: str,
    *,
    seed: int = 7,
    task: int | None = None,
    token: str | None = None,
    reference: str | None = None,
) -> AsyncIterator[Seat]:
    """Sit down at a new episode in one of the ways."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    choice = {key: value for key, value in (("seed", seed), ("task", task)) if value is not None}
    if way == "stdio":
        arguments = [f"--{key}={value}" for key, value in choice.items()]
        program, *words = command("stdio", reference or environment, *arguments)
        variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        process = StdioServerParameters(command=program, args=words, env=variables)
        async with Client(process, mode=MODE[era]) as client:
            yield Seat(client, way)
        return
    if way == "shared":
        async with connect(f"{gateway.url}/environments/{environment}/mcp", era, headers) as client:
            opened = await client.call_tool("start_episode", choice)
            assert not opened.is_error, opened
            yield Seat(client, way, opened.meta["envport/episode_id"], opened.content)
        return
    async with AsyncClient(gateway.url, token=token) as control:
        episode = await control.open(environment, **choice)
    url = episode.mcp_url
    if way == "header":
        url, headers = f"{gateway.url}/mcp", headers | {"Envport-Episode": episode.episode_id}
    async with connect(url, era, headers) as client:
        yield Seat(client, way, episode.episode_id, list(episode.observation.content))


@contextlib.asynccontextmanager
async def connect(url: str, era: Era, headers: dict[str, str] | None = None) -> AsyncIterator[Client]:
    """A client of the MCP SDK, with headers of its own."""
    async with (
        httpx2.AsyncClient(headers=headers or {}, timeout=patient(30)) as http,
        Client(streamable_http_client(url, http_client=http), mode=MODE[era]) as client,
    ):
        yield client


def texts(result: Any) -> list[str]:
    """The text blocks of a tool result."""
    return [block.text for block in result.content if block.type == "text"]


def reply(result: Any) -> str:
    """The text of a tool result, without the first observation that may come before it."""
    return "\n".join(texts(result)).rpartition("The result of this call:\n\n")[2]


class Raw:
    """MCP over plain HTTP, one request at a time, as a client without an SDK would send it."""

    def __init__(self, url: str, era: Era, headers: dict[str, str] | None = None):
        self.url, self.era = url, era
        self.http = httpx2.Client(headers=headers or {}, timeout=patient(30))
        self.session: str | None = None

    def __enter__(self) -> Raw:
        if self.era == "legacy":
            params = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "raw", "version": "1"},
            }
            answer = self.post("initialize", params)
            self.session = answer.headers.get("mcp-session-id")
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"}, "notifications/initialized")
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def post(self, method: str, params: dict[str, Any] | None = None) -> httpx2.Response:
        return self.http.send(self.request(method, params))

    def request(self, method: str, params: dict[str, Any] | None = None) -> httpx2.Request:
        """What `post` sends."""
        params = dict(params or {})
        if self.era == "modern":
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
                **params.get("_meta", {}),
            }
        return self._request(
            {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, method, params.get("name")
        )

    def send(self, body: Any, method: str, name: str | None = None, **headers: str) -> httpx2.Response:
        return self.http.send(self._request(body, method, name, **headers))

    def _request(self, body: Any, method: str, name: str | None = None, **headers: str) -> httpx2.Request:
        sent = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self.era == "modern":
            sent |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
            if name is not None:
                sent["Mcp-Name"] = name
        elif self.session is not None:
            sent |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": "2025-11-25"}
        content = body if isinstance(body, bytes) else httpx2.Request("POST", self.url, json=body).read()
        return self.http.build_request("POST", self.url, content=content, headers=sent | headers)
