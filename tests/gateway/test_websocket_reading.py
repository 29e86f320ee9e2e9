"""The server reads a WebSocket without stopping at each message, and stops when its application does not keep up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from patience import patient
from websockets.asyncio.client import connect

from envport.http.websockets import SteadyWebSocket

_MIB = 2**20


class Watched:
    """A transport that counts how often reading was stopped and begun again."""

    def __init__(self, transport: Any):
        self._transport = transport
        self.said: list[str] = []
        self.stopped = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def pause_reading(self) -> None:
        self.said.append("pause")
        self.stopped.set()
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self.said.append("resume")
        self._transport.resume_reading()


class WatchedWebSocket(SteadyWebSocket):
    """Lets the test see how it reads."""

    connected: asyncio.Queue[WatchedWebSocket]

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.transport = self.watched = Watched(transport)  # type: ignore[assignment]
        self.connected.put_nowait(self)


class Echo:
    """Sends each message back, once it is let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await self.go.wait()
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "bytes": message["bytes"]})


@asynccontextmanager
async def serving(application: Any) -> AsyncIterator[str]:
    WatchedWebSocket.connected = asyncio.Queue()
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, lifespan="off", log_level="warning", ws=WatchedWebSocket))
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"ws://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


async def test_messages_that_are_taken_as_they_come_never_stop_the_reading():
    echo = Echo()
    echo.go.set()
    async with asyncio.timeout(patient(20)), serving(echo) as url, connect(url, compression=None) as client:
        server = await WatchedWebSocket.connected.get()
        for number in range(100):
            await client.send(b"%d" % number)
            assert await client.recv() == b"%d" % number
    assert server.watched.said == []


@pytest.mark.parametrize("size", [10, _MIB], ids=["small", "large"])
async def test_reading_stops_while_messages_wait_and_none_is_lost(size: int):
    echo, number = Echo(), 64 * _MIB // size if size > 10 else 1_000
    sent = [b"%0*d" % (size, each) for each in range(number)]

    async def send(client: Any) -> None:
        for message in sent:
            await client.send(message)

    async with asyncio.timeout(patient(60)), serving(echo) as url, connect(url, compression=None) as client:
        server = await WatchedWebSocket.connected.get()
        sending = asyncio.create_task(send(client))
        await server.watched.stopped.wait()
        if size > 10:
            # What was read by then, and what the sockets hold, are a few megabytes.
            held = sum(len(message["bytes"]) for message in server.queue._queue if "bytes" in message)  # type: ignore[attr-defined]
            assert held <= 4 * _MIB
            assert not sending.done()
        echo.go.set()
        assert [await client.recv() for _ in sent] == sent
        await sending
    assert server.watched.said[:2] == ["pause", "resume"]
