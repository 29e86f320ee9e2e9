"""The sessions of the handshake era: how many there are, whose they are, and which one makes room for a new one.

The SDK keeps the sessions of each server by themselves, and refuses new ones at a limit. Here they are counted for the
whole gateway, and the one that was unused for longest is ended, so that no client keeps the others out. Messages that
are answered without the SDK use their session too, so the unused ones are ended here, not by the SDK.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from envport.clock import Clock
from envport.episodes import Leaving

__all__ = ["Sessions", "refusal"]

_VERSIONS = frozenset(version.encode("ascii") for version in HANDSHAKE_PROTOCOL_VERSIONS)
_SESSION = b"mcp-session-id"
_LONGEST_PERIOD = 15.0


def refusal(status: int, message: str) -> JSONResponse:
    """An error answer in JSON-RPC form, which MCP clients expect at an MCP address."""
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": message}}, status)


@dataclass(eq=False, slots=True)
class _Session:
    app: ASGIApp
    user: Any
    requests: int = 0
    last_used: float = 0.0
    begun: bool = False
    running: dict[int | str, Leaving] = field(default_factory=dict[int | str, Leaving])


class Sessions:
    """Counts the sessions of the handshake era, and keeps them within limits.

    Args:
        most: How many sessions there may be.
        per_principal: How many of them one principal may have.
        idle_seconds: After how many seconds without a request a session is ended.
        clock: The clock.
    """

    def __init__(self, most: int, per_principal: int, idle_seconds: float, clock: Clock):
        self._clock = clock
        self._most = most
        self._per_principal = per_principal
        self._idle_seconds = idle_seconds
        # By principal and id, the one that was used last at the end.
        self._known: dict[str, OrderedDict[bytes, _Session]] = {}
        self._numbers = count()

    @property
    def open(self) -> int:
        """How many sessions are open."""
        return sum(map(len, self._known.values()))

    async def end_unused(self) -> None:
        """End the sessions that are not used, until cancelled."""
        while True:
            await self._clock.sleep(min(_LONGEST_PERIOD, self._idle_seconds / 4))
            since = self._clock.monotonic() - self._idle_seconds
            for principal, known in list(self._known.items()):
                # In the order of their last use, except for those that are in use.
                unused = [it for it in known.items() if not it[1].requests and it[1].last_used <= since]
                for key, session in unused:
                    self._forget(principal, key)
                    await _end(key, session)

    @contextmanager
    def using(self, principal: str, named: str, app: ASGIApp, number: int | str) -> Generator[Leaving | None]:
        """Use a session for a message that is answered without the SDK.

        Args:
            principal: Name of the principal of the message.
            named: Id of the session.
            app: The server that the message is for.
            number: Id of the message.

        Yields:
            Through what the message can be cancelled; `None` if the principal has no such session at this server.
        """
        session = self._named(principal, named)
        if session is None or session.app is not app or not session.begun:
            yield None
            return
        session.requests += 1
        leaving = session.running[number] = Leaving()
        try:
            yield leaving
        finally:
            session.running.pop(number, None)
            self._used(principal, named.encode("latin-1"), session)

    def cancel(self, principal: str, named: str, number: int | str) -> None:
        """Cancel a message that is being answered without the SDK.

        Args:
            principal: Name of the principal that asks for it.
            named: Id of its session.
            number: Id of the message.
        """
        session = self._named(principal, named)
        if session is not None and (leaving := session.running.get(number)) is not None:
            leaving.say()

    def at_which(self, principal: str, named: str | None) -> ASGIApp | None:
        """The server at which a session was opened; `None` if it is unknown.

        Args:
            principal: Name of the session's principal.
            named: Id of the session.
        """
        session = self._named(principal, named) if named is not None else None
        return session.app if session is not None else None

    async def serve(self, principal: str, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, which may open, use or end a session.

        Args:
            principal: Name of the principal of the request.
            app: The server that the request is for.
            scope: The ASGI scope.
            receive: The ASGI receive channel.
            send: The ASGI send channel.
        """
        version = named = None
        for name, value in scope["headers"]:
            if name == b"mcp-protocol-version":
                version = value
            elif name == _SESSION:
                named = value
        if version is not None and version not in _VERSIONS:
            await app(scope, receive, send)
        elif named is None:
            await self._open(principal, app, scope, receive, send)
        else:
            await self._use(principal, named, app, scope, receive, send)

    def _named(self, principal: str, named: str) -> _Session | None:
        known = self._known.get(principal)
        return known.get(named.encode("latin-1")) if known is not None else None

    async def _use(
        self, principal: str, named: bytes, app: ASGIApp, scope: Scope, receive: Receive, send: Send
    ) -> None:
        known = self._known.get(principal)
        session = known.get(named) if known is not None else None
        if session is None:
            await app(scope, receive, send)
            return
        session.requests += 1
        # The first one after the handshake says that it is complete.
        session.begun = True
        try:
            await app(scope, receive, send)
        finally:
            self._used(principal, named, session)
            if scope["method"] == "DELETE":
                self._forget(principal, named)

    def _used(self, principal: str, key: bytes, session: _Session) -> None:
        session.requests -= 1
        session.last_used = self._clock.monotonic()
        known = self._known.get(principal)
        if known is not None and key in known:
            known.move_to_end(key)

    async def _open(self, principal: str, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        # Take the place before anything is awaited, under a name that is no session's.
        key = b"opening %d" % next(self._numbers)
        session = _Session(app, scope.get("user"), requests=1, last_used=self._clock.monotonic())
        self._known.setdefault(principal, OrderedDict[bytes, _Session]())[key] = session

        async def note(message: Message) -> None:
            nonlocal key
            if message["type"] == "http.response.start" and message["status"] < 400:
                given = next((value for name, value in message["headers"] if name.lower() == _SESSION), None)
                if given is not None:
                    self._forget(principal, key)
                    key = given
                    self._known.setdefault(principal, OrderedDict[bytes, _Session]())[key] = session
            await send(message)

        try:
            if not await self._make_room(principal):
                await refusal(503, "Too many sessions are open, and all of them are in use")(scope, receive, send)
                return
            await app(scope, receive, note)
        finally:
            session.requests -= 1
            if key.startswith(b"opening "):
                self._forget(principal, key)

    async def _make_room(self, principal: str) -> bool:
        """End sessions until the limits are kept. Returns false if that is not possible."""
        while (full := self._full(principal)) is not None:
            unused = next(((key, it) for key, it in self._known[full].items() if not it.requests), None)
            if unused is None:
                return False
            key, session = unused
            self._forget(full, key)
            await _end(key, session)
        return True

    def _full(self, principal: str) -> str | None:
        """The principal that has to give up a session."""
        if len(self._known[principal]) > self._per_principal:
            return principal
        if self.open > self._most:
            return max(self._known, key=lambda name: len(self._known[name]))
        return None

    def _forget(self, principal: str, key: bytes) -> None:
        known = self._known.get(principal)
        if known is not None:
            known.pop(key, None)
            if not known:
                del self._known[principal]


async def _end(key: bytes, session: _Session) -> None:
    """End a session as its client would."""
    scope: Scope = {
        "type": "http",
        "method": "DELETE",
        "path": "/",
        "query_string": b"",
        "headers": [(_SESSION, key)],
        "user": session.user,
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        """Drop the answer."""

    await session.app(scope, receive, send)
