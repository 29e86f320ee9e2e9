"""A session at an OpenEnv server: one WebSocket, and one environment of the server's behind it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, NoReturn, cast

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from envport import ToolError, UpstreamLost
from envport_envs.upstream.address import ServerAddress
from envport_envs.upstream.faults import CallRaised, ServerFull
from envport_envs.upstream.http import MOST_BYTES, parsed

__all__ = ["Session"]

Request = Literal["reset", "step"]

_OPEN_SECONDS, _END_SECONDS, _CLOSE_SECONDS = 30.0, 3.0, 1.0
_PING_SECONDS = 20.0
_QUICK: int | None = getattr(socket, "TCP_QUICKACK", None)
_FULL_STATUSES = (429, 503)


class Session:
    """A session. Made by `open`.

    The protocol has no ids, so an answer that comes twice would be taken for the answer to the next request. Each
    request is therefore followed by a message of a type that no server knows. A server answers that with an error that
    repeats the type, so that each answer is known to belong to its request.
    """

    def __init__(self, socket: ClientConnection):
        self._socket = socket
        self._marks = 0
        self._repeats = True
        self._waiting = False

    @classmethod
    async def open(cls, address: ServerAddress) -> Session:
        """Open a session. The server makes an environment for it.

        Args:
            address: The server, with its placeholders filled.

        Raises:
            ServerFull: It takes no further session now.
            UpstreamLost: It cannot be reached, or does not speak OpenEnv's protocol.
        """
        try:
            connected = await connect(
                f"ws{address.url.removeprefix('http')}/ws",
                additional_headers=dict(address.headers),
                open_timeout=_OPEN_SECONDS,
                close_timeout=_CLOSE_SECONDS,
                max_size=MOST_BYTES,
                compression=None,
                ping_interval=_PING_SECONDS,
                # A server whose environment computes for a minute answers no ping meanwhile.
                ping_timeout=None,
            )
        except InvalidStatus as error:
            if error.response.status_code in _FULL_STATUSES:
                raise ServerFull(f"HTTP status {error.response.status_code}") from None
            raise UpstreamLost(f"the OpenEnv server refused a session: {error}") from error
        except (OSError, WebSocketException) as error:
            why = str(error) or type(error).__name__
            raise UpstreamLost(f"the OpenEnv server could not be reached: {why}") from error
        session = cls(connected)
        try:
            await session._greet()
        except BaseException:
            await session.close()
            raise
        return session

    async def close(self) -> None:
        """End the session, and wait until the server has closed its environment, for a short while."""
        try:
            if self._waiting:
                # It reads nothing before it has answered.
                return
            with suppress(ConnectionClosed, TimeoutError, OSError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._socket.send('{"type":"close"}')
                    # The server closes the socket after the environment. Until then, it counts the session as used.
                    while True:
                        await self._socket.recv()
        finally:
            await self._socket.close()

    async def ask(self, request: Request, data: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request.

        Returns:
            The data of the server's answer.

        Raises:
            ToolError: The server refused the action.
            CallRaised: The environment raised an exception.
            UpstreamLost: The session is lost, or the answer is none.
        """
        self._waiting = True
        self._marks += 1
        mark = f"envport/{self._marks}"
        await self._send({"type": request, "data": dict(data)})
        if self._repeats:
            await self._send({"type": mark})
            self._acknowledge_at_once()
        answer = await self._message()
        if answer["type"] == "error" and answer["data"].get("code") not in _OF_THE_REQUEST:
            _lost(answer["data"])
        if self._repeats and not _is_mark(await self._message(), mark):
            raise UpstreamLost("the OpenEnv server sent an answer that belongs to another request")
        self._waiting = False
        if answer["type"] == "error":
            _refused(request, answer["data"])
        if answer["type"] != "observation":
            raise UpstreamLost(f"the OpenEnv server answered {request!r} with {answer['type']!r}")
        return answer["data"]

    def _acknowledge_at_once(self) -> None:
        # Some servers hold the second of two short answers until the first is acknowledged (Nagle's algorithm), which
        # Linux does 40 ms later unless it is told not to. It has to be told each time.
        if _QUICK is not None and (underneath := self._socket.transport.get_extra_info("socket")) is not None:
            underneath.setsockopt(socket.IPPROTO_TCP, _QUICK, 1)

    async def _greet(self) -> None:
        """Find out whether the server repeats types that it does not know."""
        await self._send({"type": "envport/0"})
        answer = await self._message()
        data = answer["data"]
        if answer["type"] == "error" and data.get("code") == "CAPACITY_REACHED":
            most = data.get("max_sessions")
            raise ServerFull(_message_of(data), most if type(most) is int and most > 0 else None)
        if answer["type"] != "error" or data.get("code") != "UNKNOWN_TYPE":
            _lost(data)
        self._repeats = _is_mark(answer, "envport/0")

    async def _send(self, message: Mapping[str, Any]) -> None:
        # A server that has ended the session may have said why before. Whoever reads the answer finds out.
        with suppress(ConnectionClosed, OSError):
            await self._socket.send(json.dumps(message))

    async def _message(self) -> dict[str, Any]:
        try:
            text = await self._socket.recv()
        except (ConnectionClosed, OSError) as error:
            raise UpstreamLost(f"the OpenEnv server has ended the session: {error}") from error
        try:
            message = parsed(text)
        except ValueError as error:
            raise UpstreamLost(f"the OpenEnv server sent what is no JSON: {error}") from None
        if not isinstance(message, dict):
            raise UpstreamLost("the OpenEnv server sent JSON that is no object")
        found = cast("dict[str, Any]", message)
        if not isinstance(found.get("type"), str) or not isinstance(found.get("data"), dict):
            raise UpstreamLost("the OpenEnv server sent a message without 'type' and 'data'")
        return found


_OF_THE_REQUEST = ("VALIDATION_ERROR", "EXECUTION_ERROR")


def _is_mark(answer: Mapping[str, Any], mark: str) -> bool:
    data = answer["data"]
    known = answer["type"] == "error" and data.get("code") == "UNKNOWN_TYPE"
    return known and _message_of(data).split()[-1:] == [mark]


def _message_of(data: Mapping[str, Any]) -> str:
    return str(data.get("message", "without a message"))


def _lost(data: Mapping[str, Any]) -> NoReturn:
    raise UpstreamLost(f"the OpenEnv server failed with {data.get('code')}: {_message_of(data)}")


def _refused(request: Request, data: Mapping[str, Any]) -> NoReturn:
    if data["code"] == "EXECUTION_ERROR":
        raise CallRaised(_message_of(data))
    if request != "step":
        _lost(data)
    raise ToolError(f"The action was refused: {_wrong(data.get('errors')) or _message_of(data)}")


def _wrong(errors: Any) -> str:
    """What pydantic said of the action."""
    if not isinstance(errors, list):
        return ""
    told: list[str] = []
    for error in cast("list[Any]", errors):
        if isinstance(error, dict):
            found = cast("dict[str, Any]", error)
            where: Any = found.get("loc")
            path = ".".join(map(str, cast("list[Any]", where))) if isinstance(where, list) else ""
            told.append(f"{path or 'the action'}: {found.get('msg', 'not allowed')}")
    return "; ".join(told)
