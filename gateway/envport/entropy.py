"""Random bits of the operating system, read many at a time: a system call costs far more than what it brings."""

from __future__ import annotations

import base64
import os
import threading

__all__ = ["random_bits", "random_token"]

_READ_AT_ONCE = 4096


class _Pool:
    """Bytes that were read from the operating system. Each is given out once."""

    def __init__(self) -> None:
        self._begin()
        # Otherwise a child would give out the same bytes as its parent.
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._bytes, self._at = b"", 0

    def take(self, number: int) -> bytes:
        """Random bytes, at most 4,096."""
        with self._lock:
            at, after = self._at, self._at + number
            if after > len(self._bytes):
                self._bytes = os.urandom(_READ_AT_ONCE)
                at, after = 0, number
            self._at = after
            return self._bytes[at:after]


_pool = _Pool()


def random_token(number: int) -> str:
    """A text for URLs that nobody can guess, like `secrets.token_urlsafe`.

    Args:
        number: Of how many random bytes.
    """
    return base64.urlsafe_b64encode(_pool.take(number)).rstrip(b"=").decode("ascii")


def random_bits(number: int) -> int:
    """A number that nobody can guess, like `secrets.randbits`.

    Args:
        number: Of how many bits.
    """
    return int.from_bytes(_pool.take((number + 7) // 8)) >> (-number % 8)
