"""A server that notes what reaches it, over TCP and UDP on the same port of every address of the loopback."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self

_ANSWER = b"HTTP/1.1 %s\r\nContent-Length: 5\r\nAccess-Control-Allow-Origin: *\r\nConnection: close\r\n%s\r\nhello"


class RecordingServer:
    """Answers `hello`; at `/redirect`, sends to `elsewhere`."""

    def __init__(self, elsewhere: str = "") -> None:
        self.seen: list[str] = []
        self._elsewhere = elsewhere
        self._tcp = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.port: int = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self._udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self._udp.bind(("::", self.port))

    def __enter__(self) -> Self:
        for work in (self._accept, self._receive):
            threading.Thread(target=work, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for end in (self._tcp, self._udp):
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._tcp.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            line = connection.recv(4096).decode("latin-1").partition("\r\n")[0]
            self.seen.append(line)
            if "/redirect" in line:
                connection.sendall(_ANSWER % (b"302 Found", f"Location: {self._elsewhere}\r\n".encode()))
            else:
                connection.sendall(_ANSWER % (b"200 OK", b""))

    def _receive(self) -> None:
        while True:
            try:
                self.seen.append(f"UDP {len(self._udp.recv(2048))} bytes")
            except OSError:
                return
