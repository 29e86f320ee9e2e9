"""The form of a snapshot outside its environment: the environment's own bytes, and the state of its `rng`."""

from __future__ import annotations

import base64
import binascii
import random
import struct
from typing import Any, cast

__all__ = ["pack", "state_of", "text_of", "unpack", "untold"]

# The version of the generator's state, its 624 words with the position, and the second number of a normal pair.
_RNG = struct.Struct(">B625I?d")
_WITHOUT, _WITH = b"\0", b"\1"


def state_of(rng: Any) -> object:
    """The state of an environment's random generator; `None` if it has put another kind there."""
    return rng.getstate() if type(rng) is random.Random else None


def pack(data: Any, rng: random.Random, begun_with: object) -> bytes:
    """A snapshot of what an environment's `snapshot` returned.

    Args:
        data: What it returned.
        rng: The environment's random generator.
        begun_with: The state of the generator after `reset`. The same is not stored again: it takes 2.5 kB.

    Raises:
        TypeError: It returned something else than bytes.
    """
    if not isinstance(data, bytes | bytearray):
        raise TypeError(f"snapshot() has to return bytes, not {type(data).__name__}")
    data = bytes(data)
    state = state_of(rng)
    # The state of a generator of its own is the environment's business.
    if state is None or state == begun_with:
        return _WITHOUT + data
    version, words, second = cast("tuple[int, tuple[int, ...], float | None]", state)
    return _WITH + _RNG.pack(version, *words, second is not None, second or 0.0) + data


def unpack(snapshot: bytes, rng: random.Random) -> bytes:
    """The environment's own part of a snapshot. Puts the state of the generator back.

    Args:
        snapshot: The snapshot.
        rng: The environment's random generator.

    Raises:
        ValueError: It is no snapshot.
    """
    head, data = snapshot[:1], snapshot[1:]
    if head == _WITHOUT:
        return data
    if head != _WITH or len(data) < _RNG.size:
        raise ValueError("this is no snapshot of an environment")
    version, *words, has_second, second = _RNG.unpack_from(data)
    rng.setstate((version, tuple(words), second if has_second else None))
    return data[_RNG.size :]


def text_of(snapshot: bytes) -> str:
    """A snapshot as text, for JSON."""
    return base64.b64encode(snapshot).decode("ascii")


def untold(text: Any) -> bytes:
    """A snapshot from its text.

    Raises:
        ValueError: It is malformed.
    """
    if not isinstance(text, str):
        raise ValueError("a snapshot has to be text")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"a snapshot is malformed: {error}") from None
