"""Messages between the gateway and the processes of episodes: a length of 4 bytes, then plain data as JSON.

Never pickle: the gateway reads what an episode's process sends, and that data must not be able to run code there.
"""

from __future__ import annotations

import json
import struct
from typing import Any, cast

from pydantic_core import PydanticSerializationError, from_json, to_json

__all__ = ["MAX_FRAME", "MAX_PACKET", "STDERR_TAIL", "FrameError", "Frames", "encode"]

MAX_FRAME = 64 * 2**20
"""Bytes of the largest message; larger ones are refused on both sides."""

MAX_PACKET = 160_000
"""Bytes of the largest packet between the gateway and a zygote."""

STDERR_TAIL = 4_096
"""Bytes that are kept from the end of an episode's standard error."""

_LENGTH = struct.Struct(">I")


class FrameError(Exception):
    """The received data is not a message."""


def encode(message: dict[str, Any]) -> bytes:
    """A message as bytes.

    Raises:
        FrameError: It is too large.
        TypeError: It is not plain data.
        RecursionError: It is nested too deeply.
    """
    try:
        body = to_json(message, inf_nan_mode="constants")
    except PydanticSerializationError:
        # Tool arguments may contain a lone surrogate. It cannot be encoded as UTF-8, but it survives as ASCII.
        body = json.dumps(message, separators=(",", ":")).encode("ascii")
    if len(body) > MAX_FRAME:
        raise FrameError(f"a message of {len(body)} bytes is larger than the limit of {MAX_FRAME}")
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Splits received data into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Add received data.

        Returns:
            The messages that are complete by now.

        Raises:
            FrameError: The data is not a message.
        """
        # Fast path: the data is usually one whole message.
        if not self._buffer and len(data) >= _LENGTH.size and _length(data) == len(data) - _LENGTH.size:
            return [_parse(data[_LENGTH.size :])]
        self._buffer += data
        messages: list[dict[str, Any]] = []
        while len(self._buffer) >= _LENGTH.size and len(self._buffer) >= (end := _length(self._buffer) + _LENGTH.size):
            messages.append(_parse(bytes(memoryview(self._buffer)[_LENGTH.size : end])))
            del self._buffer[:end]
        return messages


def _length(data: bytes | bytearray) -> int:
    (length,) = _LENGTH.unpack_from(data)
    if length > MAX_FRAME:
        raise FrameError(f"a message says that it is {length} bytes long; the limit is {MAX_FRAME}")
    return length


def _parse(body: bytes) -> dict[str, Any]:
    try:
        message = from_json(body)
    except ValueError:
        message = _parse_odd(body)
    if not isinstance(message, dict):
        raise FrameError("a message is not a JSON object")
    return cast("dict[str, Any]", message)


def _parse_odd(body: bytes) -> Any:
    """Parse what the fast parser refuses: lone surrogates and deep nesting."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a message is not JSON: {error}") from None
