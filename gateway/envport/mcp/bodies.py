"""The body of a request, read before a surface sees it."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.types import Message, Receive

__all__ = ["WholeBody"]


class WholeBody:
    """The ASGI receive channel of a request whose body has been read. It gives the body again.

    Args:
        messages: The messages with the parts of the body.
        body: The body; `None` if there is more of it than was read.
        receive: The channel that they came from.

    Attributes:
        body: The body; `None` if there is more of it than was read.
    """

    __slots__ = ("_left", "_receive", "body")

    def __init__(self, messages: list[Message], body: bytes | None, receive: Receive):
        self.body = body
        self._left: Iterator[Message] = iter(messages)
        self._receive = receive

    @classmethod
    async def read(cls, receive: Receive, most: int) -> WholeBody | None:
        """Wait for the body of a request; `None` if the client left before it was there.

        The surfaces take a client that leaves within its body for an error of their own, and log a traceback.

        Args:
            receive: The channel.
            most: The most bytes to read. A body that is larger is passed on, to be refused.
        """
        messages = [await receive()]
        body = messages[0].get("body", b"")
        while messages[-1].get("more_body", False) and len(body) <= most:
            messages.append(await receive())
            body += messages[-1].get("body", b"")
        if messages[-1]["type"] == "http.disconnect":
            return None
        return cls(messages, body if len(body) <= most else None, receive)

    async def __call__(self) -> Message:
        """The next message."""
        message = next(self._left, None)
        return message if message is not None else await self._receive()
