"""Why a server gave no answer, in the words of the system."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from typing import cast

__all__ = ["reason_of"]


def reason_of(error: BaseException) -> str:
    """Why there was no answer, such as `connection refused`.

    Each library wraps the system's error in words of its own, some of which are wrong: aiohttp writes `ssl:default`
    for an address without TLS.

    Args:
        error: What a client of HTTP or of WebSockets raised.
    """
    for one in _causes(error):
        if isinstance(one, ssl.SSLError):
            return str(one)
        if isinstance(one, OSError) and one.errno is not None:
            # Negative numbers are those of the resolver, which `os` does not know.
            known = one.errno > 0 or not one.strerror
            return (os.strerror(one.errno) if known else str(one.strerror)).lower()
    return str(error) or type(error).__name__


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and the chain of its causes. If there were several attempts, the causes of the first one."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = _cause(found)


def _cause(error: BaseException) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    # httpcore hands over the system's error as the message. The context may be an earlier request's.
    return error.__cause__ or next((one for one in error.args if isinstance(one, BaseException)), None)
