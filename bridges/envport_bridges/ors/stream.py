"""Server-sent events, as the protocol's clients read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

__all__ = ["SSE_HEADERS", "CallAnswer", "answer_events", "sse"]

SSE_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers of a stream, so that no proxy holds it back."""

_CHUNK = 4096
# The client gives up after 30 s without a line.
_BEAT_SECONDS = 10.0
_BEAT = b": still running\r\n\r\n"


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """The answer to a call.

    Attributes:
        text: JSON; or, if the call has failed, why.
        failed: Whether the session is over with it, because of a fault.
    """

    text: str
    failed: bool = False


def sse(event: str, data: str) -> bytes:
    """An event."""
    lines = "".join(f"data: {line}\r\n" for line in data.splitlines() or ("",))
    return f"event: {event}\r\n{lines}\r\n".encode()


async def answer_events(task_id: str, call: asyncio.Task[CallAnswer]) -> AsyncIterator[bytes]:
    """The events that answer a call: its id, and its answer when it is there. The call goes on if nobody listens.

    Args:
        task_id: The id, with which the answer can be asked for again.
        call: The call.
    """
    yield sse("task_id", task_id)
    while not call.done():
        await asyncio.wait({call}, timeout=_BEAT_SECONDS)
        if not call.done():
            yield _BEAT
    answer = call.result()
    if answer.failed:
        yield sse("error", answer.text)
        return
    for start in range(0, len(answer.text), _CHUNK):
        last = start + _CHUNK >= len(answer.text)
        yield _chunk("end" if last else "chunk", answer.text[start : start + _CHUNK])


def _chunk(event: str, text: str) -> bytes:
    # The client strips white space from the start of each chunk. In JSON without spaces, it is within a string.
    if text[0].isspace():
        text = f"\\u{ord(text[0]):04x}{text[1:]}"
    return f"event: {event}\r\ndata: {text}\r\n\r\n".encode()
