"""A proxy that swallows answers, as a network does that breaks after the request has arrived.

It lets no WebSocket through, so that the bridge plays over HTTP.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit


class CuttingProxy:
    """Passes requests on, and cuts the connection instead of passing the answer to some of them back.

    Args:
        target: Address of the gateway.
        cuts: Whether the answer to the n-th tool call is swallowed, counted from 0.
    """

    def __init__(self, target: str, cuts: set[int]):
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._cuts = cuts
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.calls = 0
        self._lock = threading.Lock()

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as gateway:
            while request := _message(client):
                if b"upgrade: websocket" in request.lower():
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                    continue
                gateway.sendall(request)
                answer = _message(gateway)
                if self._cut(request):
                    return
                client.sendall(answer)

    def _cut(self, request: bytes) -> bool:
        if b"tools/call" not in request:
            return False
        with self._lock:
            self.calls += 1
            return self.calls - 1 in self._cuts


def _message(sock: socket.socket) -> bytes:
    """One HTTP message; nothing at the end."""
    message = b""
    while b"\r\n\r\n" not in message:
        if not (data := sock.recv(65536)):
            return b""
        message += data
    head = message.partition(b"\r\n\r\n")[0]
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    whole = len(head) + 4 + (int(length[1]) if length else 0)
    while len(message) < whole:
        message += sock.recv(65536)
    return message


@contextmanager
def cutting(target: str, cuts: set[int]) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(target, cuts)
    thread = threading.Thread(target=proxy.serve)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
