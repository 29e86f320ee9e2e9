"""The rollout channel of a gateway: one WebSocket for the requests of any number of episodes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from socket import SOCK_STREAM
from socket import socket as Socket
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic_core import from_json
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol

from envport.client.certificates import trusted
from envport.client.deadlines import Deadlines
from envport.client.reasons import reason_of
from envport.errors import EnvportError, GatewayUnreachable, InvalidArguments, error_from_code
from envport.types import CHANNEL_LINES, MAX_BODY

__all__ = ["Channel", "ChannelMissing"]

# At debug level, the library logs the headers of the handshake, with the token.
_quiet = logging.getLogger(f"{__name__}.socket")
_quiet.setLevel(logging.INFO)

_CONNECT_SECONDS = 10.0
_PING_SECONDS = 20.0
# A trainer may hold Python's lock for long, and then answers no ping.
_PONG_SECONDS = 120.0
_MESSAGE = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}'
# The frame around the parameters is small.
_LARGEST = MAX_BODY - 1024
_MUCH = 2**16
_LARGE = 2**18
_WHOLE = frozenset({Opcode.BINARY, Opcode.TEXT})
_AWAY = frozenset({502, 503, 504})


class ChannelMissing(Exception):
    """The gateway has no rollout channel, or a proxy on the way lets no WebSocket through."""


class _Line(ClientConnection):
    """A WebSocket that hands over each message as it comes, and sends without waiting.

    Waiting for messages in a task, and sending each message on its own, would be a large part of the cost of a call.
    Fragments, and messages that come before `taken` is set, are received as usual.
    """

    taken: Callable[[bytes], None] | None = None
    _outgoing: list[bytes] | None = None

    def process_event(self, event: Any) -> None:
        if self.taken is not None and isinstance(event, Frame) and event.fin and event.opcode in _WHOLE:
            self.taken(bytes(event.data))
        else:
            super().process_event(event)

    def post(self, request: bytes, *, alone: bool) -> None:
        """Send a request at the end of this turn of the event loop, with the others of the turn.

        If the connection has closed by then, nothing is sent; whoever reads from it finds out.

        Args:
            request: The request.
            alone: Whether it is sent now, because no others are to be expected.
        """
        if self._outgoing is not None:
            self._outgoing.append(request)
            return
        self._outgoing = [request]
        if alone:
            self._flush()
        else:
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        requests, self._outgoing = self._outgoing, None
        if requests is None or self.protocol.state is not State.OPEN:
            return
        for message in _joined(requests) if self.subprotocol is not None and len(requests) > 1 else requests:
            self.protocol.send_binary(message)
        try:
            self.send_data()
        except (OSError, RuntimeError) as error:
            self.set_connection_exc(error)
            self.transport.abort()


class Channel:
    """A connection to the rollout channel. It is made at the first request, and anew after a drop.

    When the connection drops, every request that has no answer raises `GatewayUnreachable`. It may be sent again: a
    call with the same id, an opening with the same name, and whatever changes nothing twice.

    Args:
        gateway: Address of the gateway.
        headers: Headers of the handshake, such as a token's.
    """

    def __init__(self, gateway: str, headers: Mapping[str, str]):
        self._gateway = gateway
        self._headers = dict(headers)
        self._socket: _Line | None = None
        self._reading: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()
        self._there = False
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._deadlines = Deadlines(self._expire)
        self._number = 0

    async def connect(self) -> None:
        """Connect, unless there is a connection.

        Raises:
            ChannelMissing: There is no channel. Never once there was a connection.
            GatewayUnreachable: There is no answer.
            EnvportError: The gateway refuses the token.
        """
        async with self._connecting:
            if self._socket is not None:
                return
            try:
                self._socket = socket = await self._connected()
            except ChannelMissing as missing:
                if not self._there:
                    raise
                raise self._unreachable(missing) from None
            self._there = True
            socket.taken = self._take
            self._reading = asyncio.create_task(self._read(socket))

    async def _connected(self) -> _Line:
        address = f"ws{self._gateway.removeprefix('http')}/rollouts"
        try:
            socket = await connect(
                address,
                create_connection=_Line,
                subprotocols=[Subprotocol(CHANNEL_LINES)],
                sock=await _connected_socket(self._gateway),
                logger=_quiet,
                additional_headers=self._headers,
                # Messages are small, and mostly go within one machine.
                compression=None,
                max_size=None,
                proxy=None,
                open_timeout=_CONNECT_SECONDS,
                ping_interval=_PING_SECONDS,
                ping_timeout=_PONG_SECONDS,
                ssl=trusted() if address.startswith("wss:") else None,
            )
        except InvalidStatus as error:
            raise self._refusal(error) from None
        except InvalidHandshake as error:
            raise ChannelMissing(str(error)) from None
        except (OSError, TimeoutError, EOFError) as error:
            raise self._unreachable(error) from error
        try:
            # Some proxies answer the handshake, and then let nothing through.
            async with asyncio.timeout(_CONNECT_SECONDS):
                await (await socket.ping())
        except (OSError, TimeoutError, WebSocketException) as error:
            await socket.close()
            raise ChannelMissing(f"no answer to a ping: {error or type(error).__name__}") from None
        return cast("_Line", socket)

    async def request(self, method: str, params: bytes, seconds: float | None) -> dict[str, Any]:
        """Send a request, and wait for its result.

        Args:
            method: What is asked for.
            params: With what, as JSON.
            seconds: How long to wait; `None` for as long as it takes.

        Raises:
            EnvportError: The gateway's error, as the same class.
            GatewayUnreachable: There was no answer. The request may have been carried out.
            ChannelMissing: There is no channel.
        """
        if (size := len(params)) > _LARGEST:
            raise InvalidArguments(f"The arguments of a call may take {_LARGEST:,} bytes at most, not {size:,}.")
        if self._socket is None:
            await self.connect()
        socket = self._socket
        if socket is None:
            raise GatewayUnreachable(f"{self._gateway} has closed the connection at once")
        self._number = number = self._number + 1
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            if seconds is not None:
                self._deadlines.begin(number, seconds)
            if socket.transport.get_write_buffer_size() > _MUCH:
                # The gateway does not read.
                await asyncio.wait_for(socket.drain(), seconds)
            message = _MESSAGE % (number, method.encode("ascii"), params)
            socket.post(message, alone=len(self._waiting) == 1)
            return _result(await answer)
        except (OSError, WebSocketException) as error:
            raise self._unreachable(error) from error
        finally:
            self._deadlines.end(number)
            del self._waiting[number]
            # The connection may drop before the request is sent, and then nobody awaits the answer.
            if answer.done() and not answer.cancelled():
                answer.exception()

    async def close(self) -> None:
        """Close the connection."""
        try:
            if self._socket is not None:
                await self._socket.close()
            if self._reading is not None:
                await self._reading
        finally:
            # Not before: a request that still waits is to end in time.
            self._deadlines.stop()

    async def _read(self, socket: ClientConnection) -> None:
        try:
            while True:
                self._take(await socket.recv(decode=False))
        except (OSError, WebSocketException) as error:
            # Not in a `finally`: a forked child destroys this coroutine, and must not close its parent's connection.
            self._dropped(error)
            await socket.close()

    def _take(self, data: bytes) -> None:
        try:
            for line in data.split(b"\n"):
                self._answered(from_json(line))
        except (ValueError, TypeError, KeyError) as error:
            socket = self._socket
            self._dropped(error)
            if socket is not None:
                # Whoever reads from it finds out.
                socket.transport.abort()

    def _answered(self, message: Any) -> None:
        if message["id"] is None:
            raise ValueError(f"the gateway could not read a message: {message}")
        waiting = self._waiting.get(message["id"])
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def _dropped(self, cause: Exception) -> None:
        self._socket = None
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self._unreachable(cause))

    def _expire(self, number: int, seconds: float) -> None:
        answer = self._waiting[number]
        if not answer.done():
            late = GatewayUnreachable(f"no answer from {self._gateway} within {seconds:g} s")
            # Whoever asked knows by it that the time is over, and does not ask again.
            late.__cause__ = TimeoutError()
            answer.set_exception(late)

    def _refusal(self, refused: InvalidStatus) -> Exception:
        response = refused.response
        try:
            fields = dict(json.loads(response.body or b"")["error"])
            return error_from_code(fields.pop("code"), fields.pop("message"), **fields)
        except (ValueError, KeyError, TypeError):
            if response.status_code in _AWAY:
                return GatewayUnreachable(f"{self._gateway} answered {response.status_code}")
            return ChannelMissing(f"{self._gateway} answered {response.status_code}")

    def _unreachable(self, error: Exception) -> GatewayUnreachable:
        unreachable = GatewayUnreachable(f"no answer from {self._gateway}: {reason_of(error)}")
        unreachable.__cause__ = error
        return unreachable


def _joined(requests: Sequence[bytes]) -> Iterator[bytes]:
    """The requests as messages of several lines, none of which is much larger than it has to be."""
    begin = size = 0
    for number, request in enumerate(requests):
        if number > begin and size + len(request) > _LARGE:
            yield b"\n".join(requests[begin:number])
            begin, size = number, 0
        size += len(request) + 1
    yield b"\n".join(requests[begin:])


async def _connected_socket(gateway: str) -> Socket:
    parts, loop = urlsplit(gateway), asyncio.get_running_loop()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    failed: OSError = OSError(f"{parts.hostname} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(parts.hostname, port, type=SOCK_STREAM):
        made = Socket(family, kind, protocol)
        made.setblocking(False)
        try:
            # A forked child waits at its end for the threads of uvloop's resolver. This way to connect starts its own.
            async with asyncio.timeout(_CONNECT_SECONDS):
                await loop.sock_connect(made, address)
        except OSError as error:
            made.close()
            failed = error
        except BaseException:
            made.close()
            raise
        else:
            return made
    raise failed


def _result(message: dict[str, Any]) -> dict[str, Any]:
    if type(result := message.get("result")) is dict:
        return cast("dict[str, Any]", result)
    raise _error(message.get("error"))


def _error(error: Any) -> EnvportError:
    try:
        fields = dict(error["data"])
        return error_from_code(fields.pop("code"), fields.pop("message"), **fields)
    except (KeyError, TypeError, ValueError):
        return GatewayUnreachable(f"the gateway answered {str(error)[:200]!r}")
