"""Messages between the gateway and the processes of episodes: a length of 4 bytes, and JSON of plain data.

Never pickle: what an episode's process sends is read by the gateway, and must not be able to run anything there.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any, cast

__all__ = ["MAX_FRAME", "MAX_PACKET", "STDERR_TAIL", "FrameError", "Frames", "encode", "receive"]

MAX_FRAME = 64 * 2**20
"""Bytes of the largest message; larger ones are refused on both sides."""

MAX_PACKET = 160_000
"""Bytes of the largest packet between the gateway and a zygote."""

STDERR_TAIL = 4_096
"""Bytes that are kept of what an episode's process writes to standard error."""

_LENGTH = struct.Struct(">I")


class FrameError(Exception):
    """What came is no message."""


def encode(message: dict[str, Any]) -> bytes:
    """A message as bytes.

    Raises:
        FrameError: It is too large.
        TypeError: It is not plain data.
        RecursionError: It is nested too deeply.
    """
    # ASCII, so that lone surrogates, which tool arguments may hold, survive.
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    if len(body) > MAX_FRAME:
        raise FrameError(f"a message of {len(body)} bytes is larger than the limit of {MAX_FRAME}")
    return _LENGTH.pack(len(body)) + body


def receive(sock: socket.socket, frames: Frames) -> dict[str, Any] | None:
    """Wait for the next message on a blocking socket; `None` once it has been closed.

    Raises:
        FrameError: What came is no message.
    """
    while True:
        for message in frames:
            return message
        if not (data := sock.recv(65536)):
            return None
        frames.feed(data)


class Frames:
    """Cuts what arrives into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take what arrived."""
        self._buffer += data

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The messages that are complete.

        Raises:
            FrameError: What came is no message.
        """
        buffer = self._buffer
        while len(buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer)
            if length > MAX_FRAME:
                raise FrameError(f"a message says that it is {length} bytes long; the limit is {MAX_FRAME}")
            end = _LENGTH.size + length
            if len(buffer) < end:
                return
            body = bytes(memoryview(buffer)[_LENGTH.size : end])
            del buffer[:end]
            yield _parse(body)


def _parse(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a message is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise FrameError("a message is not a JSON object")
    return cast("dict[str, Any]", message)
