"""A proxy of WebSockets that cuts a connection at chosen frames, before or after the frame has gone through."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from patience import patient


class FrameCutter:
    """Passes frames on between clients and a gateway.

    Args:
        port: Port of the gateway.
        cuts: At which frames the connection is cut, counted over all connections and both directions, and whether the
            frame goes through before.
        lines: Whether clients may ask for the subprotocol in which a message holds several requests.
    """

    def __init__(self, port: int, cuts: dict[int, bool], *, lines: bool = True):
        self._port = port
        self._cuts = cuts
        self._lines = lines
        self.frames = 0
        self.cut = 0
        self.url = ""

    async def serve(self, started: threading.Event) -> None:
        self._loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self.stop = lambda: self._loop.call_soon_threadsafe(stop.set)
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await stop.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            if not self._lines:
                request = re.sub(rb"(?i)sec-websocket-protocol: .*\r\n", b"", request)
            ours.write(request)
            if b"upgrade: websocket" in request.lower():
                writer.write(await theirs.readuntil(b"\r\n\r\n"))
                passing = (self._frames(reader, ours), self._frames(theirs, writer))
            else:
                passing = (_bytes(reader, ours), _bytes(theirs, writer))
            tasks = [asyncio.ensure_future(one) for one in passing]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            for end in (writer, ours):
                end.close()

    async def _frames(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(2)
                size = head[1] & 0x7F
                more = await reader.readexactly({126: 2, 127: 8}.get(size, 0))
                size = int.from_bytes(more, "big") if more else size
                rest = await reader.readexactly(size + (4 if head[1] & 0x80 else 0))
                self.frames += 1
                goes_through = self._cuts.get(self.frames)
                if goes_through is not False:
                    writer.write(head + more + rest)
                    await writer.drain()
                if goes_through is not None:
                    self.cut += 1
                    return


async def _bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


@contextmanager
def frame_cutter(port: int, cuts: dict[int, bool], *, lines: bool = True) -> Iterator[FrameCutter]:
    cutter, started = FrameCutter(port, cuts, lines=lines), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(cutter.serve(started)))
    thread.start()
    try:
        assert started.wait(patient(20))
        yield cutter
    finally:
        cutter.stop()
        thread.join()
