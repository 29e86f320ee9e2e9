"""A proxy that keeps every byte that a gateway sends."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Recorder:
    """Forwards connections to a port, which may be told later, and records the answers."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.port = 0
        self.sent = bytearray()
        self._sockets: list[socket.socket] = []

    def serve(self) -> None:
        while True:
            try:
                inside, _ = self._listening.accept()
            except OSError:
                return
            outside = socket.create_connection(("127.0.0.1", self.port))
            self._sockets += [inside, outside]
            threading.Thread(target=self._pump, args=(inside, outside, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(outside, inside, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, record: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if record:
                    self.sent += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        for one in (self._listening, *self._sockets):
            one.close()


@contextlib.contextmanager
def recording() -> Iterator[Recorder]:
    recorder = Recorder()
    thread = threading.Thread(target=recorder.serve)
    thread.start()
    try:
        yield recorder
    finally:
        recorder.close()
        thread.join(10)
