"""Stopping a stdio server on SIGTERM, after the running calls have been answered."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from envport.episodes import EpisodeTable

__all__ = ["Exchange", "StandardInput", "end_on_sigterm"]

logger = logging.getLogger(__name__)

# After a drain, the time for closing environments and for calls that cannot be cancelled.
_LEAVE_SECONDS = 5.0


class StandardInput:
    """Lines of standard input, read in a daemon thread. Other code that reads standard input gets end of file."""

    def __init__(self) -> None:
        self._send: MemoryObjectSendStream[str]
        self.lines: MemoryObjectReceiveStream[str]
        self._send, self.lines = anyio.create_memory_object_stream[str](0)
        self._loop = asyncio.get_running_loop()
        own = os.dup(0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        threading.Thread(target=self._read, args=[own], daemon=True).start()

    def close(self) -> None:
        """End the lines, even if more input may come."""
        self._send.close()

    def _read(self, descriptor: int) -> None:
        # The event loop may end before the input does.
        with suppress(Exception), os.fdopen(descriptor, encoding="utf-8", errors="replace") as text:
            for line in text:
                asyncio.run_coroutine_threadsafe(self._send.send(line), self._loop).result()
            self._loop.call_soon_threadsafe(self.close)


class _Reading(Protocol):
    async def receive(self) -> SessionMessage | Exception: ...
    async def aclose(self) -> None: ...


class _Writing(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...
    async def aclose(self) -> None: ...


class Exchange:
    """Passes on the messages between a client and the server, and tracks the requests that have no answer yet.

    Args:
        reading: The stream of messages from the client.
        writing: The stream of messages to the client.
    """

    def __init__(self, reading: _Reading, writing: _Writing):
        self.read = _Read(self, reading)
        self.write = _Write(self, writing)
        self._open: set[Any] = set()
        self._closed = False
        self._answered = anyio.Event()

    def take_no_more(self) -> None:
        """Drop new requests. The client learns from the end of the process that they were not carried out."""
        self._closed = True

    async def answered(self) -> None:
        """Wait until every request that was passed on has an answer."""
        while self._open:
            self._answered = anyio.Event()
            await self._answered.wait()

    def coming(self, item: SessionMessage | Exception) -> bool:
        """Record a message from the client, and return whether to pass it on."""
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCRequest):
            if self._closed:
                return False
            self._open.add(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            # A cancelled request gets no answer.
            self._close((message.params or {}).get("requestId"))
        return True

    def gone(self, item: SessionMessage) -> None:
        """Record a message that was sent to the client."""
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._close(item.message.id)

    def _close(self, number: Any) -> None:
        self._open.discard(number)
        if not self._open:
            self._answered.set()


class _Closing:
    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Read(_Closing):
    def __init__(self, exchange: Exchange, stream: _Reading):
        self._exchange = exchange
        self._stream = stream

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        while not self._exchange.coming(item := await self._stream.receive()):
            pass
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Write(_Closing):
    def __init__(self, exchange: Exchange, stream: _Writing):
        self._exchange = exchange
        self._stream = stream

    async def send(self, item: SessionMessage, /) -> None:
        await self._stream.send(item)
        self._exchange.gone(item)

    async def aclose(self) -> None:
        await self._stream.aclose()


async def end_on_sigterm(
    table: EpisodeTable,
    exchange: Exchange,
    source: StandardInput,
    seconds: float,
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """On SIGTERM, wait up to `seconds` for running calls to be answered, then end the episodes and the input.

    After a second SIGTERM, it stops waiting for answers.
    """
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        task_status.started()
        await anext(signals)
        table.take_no_more()
        exchange.take_no_more()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_waiting, signals, tasks.cancel_scope)
            with anyio.move_on_after(seconds):
                await exchange.answered()
            tasks.cancel_scope.cancel()
        await table.drain(0)
        patience = threading.Timer(_LEAVE_SECONDS, _leave)
        patience.daemon = True
        patience.start()
        source.close()
        # Keep handling the signal, so that another SIGTERM does not kill the process before the server has ended.
        await anyio.sleep_forever()


async def _stop_waiting(signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope) -> None:
    await anext(signals)
    scope.cancel()


def _leave() -> None:
    logger.warning("a call could not be cancelled; the process ends without it")
    logging.shutdown()
    os._exit(0)
