"""How the server reads and writes its sockets: few system calls, and nothing lost or held back."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from patience import patient
from websockets.asyncio.client import connect

from envport.http.sockets import SteadyWebSocket, WholeAnswers

_MIB = 2**20


class Watched:
    """A transport that notes what is written, and when reading is stopped and begun again."""

    def __init__(self, transport: Any):
        self._transport = transport
        self.said: list[str] = []
        self.written: list[bytes] = []
        self.stopped = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self._transport.write(data)

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


class WatchedHttp(WholeAnswers):
    """Lets the test see what it writes."""

    connected: asyncio.Queue[WatchedHttp]

    def connection_made(self, transport: Any) -> None:
        self.begun, self.lost = asyncio.Event(), asyncio.Event()
        self.watched: Any = Watched(transport)
        super().connection_made(self.watched)
        self.connected.put_nowait(self)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.begun.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost.set()


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
    WatchedWebSocket.connected, WatchedHttp.connected = asyncio.Queue(), asyncio.Queue()
    listening = socket.create_server(("127.0.0.1", 0))
    protocols: Any = {"http": WatchedHttp, "ws": WatchedWebSocket}
    server = uvicorn.Server(uvicorn.Config(application, lifespan="off", log_level="critical", **protocols))
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


class Answers:
    """Answers as the path says; a stream goes on when the test has read its head."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]

        async def start(status: int = 200, length: int | None = None) -> None:
            headers = [(b"content-length", b"%d" % length)] if length is not None else []
            await send({"type": "http.response.start", "status": status, "headers": headers})

        async def body(data: bytes, *, more: bool = False) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": more})

        if path == "/whole":
            await start(length=4)
            await body(b"said")
        elif path == "/parts":
            await start(length=6)
            for number in range(6):
                await body(b"%d" % number, more=number < 5)
        elif path == "/stream":
            await start()
            await self.go_on.wait()
            await body(b"said")
        elif path == "/read":
            read = await receive()
            await start(length=len(read["body"]))
            await body(read["body"])
        elif path == "/nothing":
            await start(204)
            await body(b"")
        elif path == "/empty":
            await start(length=0)
            await body(b"")
        else:
            await start(length=4)
            raise ValueError("broken")


@asynccontextmanager
async def asking(answers: Answers) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, Any]]:
    """A connection to a server, and its transport there."""
    async with asyncio.timeout(patient(20)), serving(answers) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
        try:
            yield reader, writer, (await WatchedHttp.connected.get()).watched
        finally:
            writer.close()


def request(path: str, method: str = "GET", more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: here\r\n{more}\r\n".encode()


@pytest.mark.parametrize(
    ("path", "method", "ends", "writes"),
    [
        ("/whole", "GET", b"\r\n\r\nsaid", 1),
        ("/parts", "GET", b"\r\n\r\n012345", 6),
        ("/whole", "HEAD", b"\r\n\r\n", 1),
        ("/nothing", "GET", b"\r\n\r\n", 1),
        ("/empty", "GET", b"\r\n\r\n", 1),
    ],
)
async def test_an_answer_is_written_with_the_beginning_of_its_body(path: str, method: str, ends: bytes, writes: int):
    async with asking(Answers()) as (reader, writer, transport):
        # Twice: the connection goes on.
        for _ in range(2):
            transport.written.clear()
            writer.write(request(path, method))
            got = b""
            while not got.endswith(ends):
                got += await reader.read(1000)
            assert got.startswith((b"HTTP/1.1 200 OK", b"HTTP/1.1 204"))
            assert got.count(b"HTTP/1.1") == 1
            assert len([data for data in transport.written if data]) == writes


async def test_the_head_of_a_stream_waits_for_nothing():
    answers = Answers()
    async with asking(answers) as (reader, writer, _):
        writer.write(request("/stream"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        answers.go_on.set()
        assert await reader.readuntil(b"0\r\n\r\n") == b"4\r\nsaid\r\n0\r\n\r\n"


async def test_a_client_that_asks_before_it_sends_is_told_to_go_on():
    async with asking(Answers()) as (reader, writer, _):
        writer.write(request("/read", "POST", "expect: 100-continue\r\ncontent-length: 3\r\n"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"abc")
        assert (await reader.readuntil(b"abc")).startswith(b"HTTP/1.1 200 OK")


async def test_requests_that_come_together_are_answered_in_order():
    async with asking(Answers()) as (reader, writer, _):
        writer.write(request("/parts") + request("/whole") + request("/parts"))
        got = b""
        while got.count(b"012345") < 2:
            got += await reader.read(1000)
    bodies = [answer.rsplit(b"\n", 1)[1] for answer in got.split(b"HTTP/1.1 200 OK")[1:]]
    assert bodies == [b"012345", b"said", b"012345"]


async def test_a_response_whose_client_leaves_is_freed_at_once():
    answers, went = Answers(), asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await answers.go_on.wait()
        await answers({**scope, "path": "/whole"}, receive, send)
        went.set()

    async with asyncio.timeout(patient(20)), serving(application) as url:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
        writer.write(request("/whole"))
        server: Any = await WatchedHttp.connected.get()
        await server.begun.wait()
        response = weakref.ref(server.cycle)
        writer.close()
        await server.lost.wait()
        gc.disable()
        try:
            del server
            answers.go_on.set()
            await went.wait()
            for _ in range(3):
                await asyncio.sleep(0)
            assert response() is None
        finally:
            gc.enable()


async def test_an_application_that_breaks_off_closes_the_connection_and_promises_no_less():
    async with asking(Answers()) as (reader, writer, _):
        writer.write(request("/broken"))
        got = await reader.read()
    assert got.startswith(b"HTTP/1.1 200 OK")
    assert b"content-length: 4" in got
    assert got.endswith(b"\r\n\r\n")
