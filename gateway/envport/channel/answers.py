"""Answers of one connection of the rollout channel: several in one message, where the client reads that."""

from __future__ import annotations

import time
from contextlib import suppress

from starlette.types import Send

__all__ = ["ChannelAnswers"]

_MOST_BYTES = 2**18
_LONGEST_SECONDS = 0.001


class ChannelAnswers:
    """Sends answers. Writing a message costs about a tenth of a call, so that answers in lines wait for each other.

    Args:
        send: The ASGI send channel of the WebSocket.
        lines: Whether the client reads several answers in one message, one a line. If not, each answer is a message.
    """

    def __init__(self, send: Send, *, lines: bool):
        self._send = send
        self._lines = lines
        self._kept: list[bytes] = []
        self._size = 0
        self._since = 0.0
        self._text = False

    def begin(self) -> None:
        """Begin to carry out what a message asks for."""
        self._since = time.monotonic()

    async def add(self, body: bytes, *, text: bool) -> None:
        """Keep an answer for the next message, which is sent by `flush`, or soon.

        Args:
            body: The answer.
            text: Whether it is sent as text, as its request was.
        """
        if not self._lines:
            await self._tell([body], text)
            return
        if self._kept and text != self._text:
            await self.flush()
        self._text = text
        self._kept.append(body)
        self._size += len(body)
        if self._size > _MOST_BYTES or time.monotonic() - self._since > _LONGEST_SECONDS:
            await self.flush()
            self._since = time.monotonic()

    async def flush(self) -> None:
        """Send what was kept."""
        if self._kept:
            kept, self._kept, self._size = self._kept, [], 0
            await self._tell(kept, self._text)

    async def _tell(self, answers: list[bytes], text: bool) -> None:
        body = b"\n".join(answers)
        # The client may leave while it is answered, and asks again when it is back.
        with suppress(OSError):
            await self._send({"type": "websocket.send", **({"text": body.decode()} if text else {"bytes": body})})
