"""How the server reads and writes its sockets: with fewer system calls than uvicorn by itself."""

from __future__ import annotations

from typing import Any
from weakref import ref

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

__all__ = ["SteadyWebSocket", "WholeAnswers"]


class WholeAnswers(HttpToolsProtocol):
    """Writes the head of a response together with the first part of its body, where its length is known.

    Uvicorn writes them one after the other, and the client reads two packets. So such a head waits for that part.
    """

    def on_headers_complete(self) -> None:
        """Begin a response."""
        before = self.cycle
        super().on_headers_complete()
        # The response to HEAD has no body.
        if self.cycle is not before and self.scope["method"] != "HEAD":
            transport: Any = _Joining(self.cycle)
            self.cycle.transport = transport


class _Joining:
    """Stands in for the transport of a response until its head is written.

    Args:
        cycle: The response.
    """

    __slots__ = ("_cycle", "_head", "_transport")

    def __init__(self, cycle: RequestResponseCycle):
        # Weak, so that a response whose client leaves is freed at once.
        self._cycle = ref(cycle)
        self._transport = cycle.transport
        self._head = b""

    def write(self, data: bytes) -> None:
        cycle = self._cycle()
        if cycle is not None and cycle.response_started:
            if not self._head and cycle.expected_content_length > 0:
                self._head = data
                return
            cycle.transport = self._transport
        self._transport.write(self._head + data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        """Close the connection, because the application broke off before the body."""
        if self._head:
            self._transport.write(self._head)
        self._transport.close()


class SteadyWebSocket(WebSocketsSansIOProtocol):
    """Stops reading only when a message has to wait for another one.

    Uvicorn stops reading at each message, and goes on when the application takes it. That is two system calls, about a
    twentieth of what a call costs on the rollout channel.
    """

    def send_receive_event_to_app(self) -> None:
        """Hand a message to the application."""
        if self.read_paused or not self.queue.empty():
            super().send_receive_event_to_app()
            return
        # Uvicorn then takes it that reading has stopped already.
        self.read_paused = True
        try:
            super().send_receive_event_to_app()
        finally:
            self.read_paused = False
