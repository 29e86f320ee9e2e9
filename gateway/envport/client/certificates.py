"""The certificates that clients trust."""

from __future__ import annotations

import ssl
from functools import cache

import httpx2

__all__ = ["trusted"]


@cache
def trusted() -> ssl.SSLContext:
    """The TLS settings of all clients in this process.

    By default, every HTTP client reads the system's certificates again, which takes 30 ms of CPU time.
    """
    return httpx2.create_ssl_context()
