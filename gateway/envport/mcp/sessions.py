"""The sessions of the handshake era: how many there are, whose they are, and which one makes room for a new one.

The SDK keeps the sessions of each server by themselves, and refuses new ones at a limit. Here they are counted for the
whole gateway, and the one that was unused for longest is ended, so that no client keeps the others out.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from itertools import count
from typing import Any

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Sessions", "refusal"]

_VERSIONS = frozenset(version.encode("ascii") for version in HANDSHAKE_PROTOCOL_VERSIONS)
_SESSION = b"mcp-session-id"


def refusal(status: int, message: str) -> JSONResponse:
    """An error answer in JSON-RPC form, which MCP clients expect at an MCP address."""
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": message}}, status)


@dataclass(eq=False, slots=True)
class _Session:
    app: ASGIApp
    user: Any
    requests: int = 0
    last_used: float = 0.0


class Sessions:
    """Counts the sessions of the handshake era, and keeps them within limits.

    Args:
        most: How many sessions there may be.
        per_principal: How many of them one principal may have.
        idle_seconds: After how many seconds without a request the SDK ends a session.
    """

    def __init__(self, most: int, per_principal: int, idle_seconds: float):
        self._most = most
        self._per_principal = per_principal
        self._idle_seconds = idle_seconds
        # By principal and id, the one that was used last at the end.
        self._known: dict[str, OrderedDict[bytes, _Session]] = {}
        self._numbers = count()

    @property
    def open(self) -> int:
        """How many sessions are open."""
        self._forget_idle()
        return self._count()

    def at_which(self, principal: str, named: str | None) -> ASGIApp | None:
        """The server at which a session was opened; `None` if it is unknown.

        Args:
            principal: Name of the session's principal.
            named: Id of the session.
        """
        known = self._known.get(principal)
        session = known.get(named.encode("latin-1")) if known is not None and named is not None else None
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

    async def _use(
        self, principal: str, named: bytes, app: ASGIApp, scope: Scope, receive: Receive, send: Send
    ) -> None:
        known = self._known.get(principal)
        session = known.get(named) if known is not None else None
        if known is None or session is None:
            await app(scope, receive, send)
            return
        session.requests += 1
        try:
            await app(scope, receive, send)
        finally:
            session.requests -= 1
            session.last_used = time.monotonic()
            if scope["method"] == "DELETE":
                self._forget(principal, named)
            elif named in known:
                known.move_to_end(named)

    async def _open(self, principal: str, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        # Take the place before anything is awaited, under a name that is no session's.
        key = b"opening %d" % next(self._numbers)
        session = _Session(app, scope.get("user"), requests=1, last_used=time.monotonic())
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
        self._forget_idle()
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
        if self._count() > self._most:
            return max(self._known, key=lambda name: len(self._known[name]))
        return None

    def _count(self) -> int:
        return sum(map(len, self._known.values()))

    def _forget(self, principal: str, key: bytes) -> None:
        known = self._known.get(principal)
        if known is not None:
            known.pop(key, None)
            if not known:
                del self._known[principal]

    def _forget_idle(self) -> None:
        """Forget the sessions that the SDK has ended."""
        since = time.monotonic() - self._idle_seconds
        for principal, known in list(self._known.items()):
            for key, session in list(known.items()):
                if session.requests or session.last_used > since:
                    break
                self._forget(principal, key)


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
