"""The page's paths in front of NiceGUI: who may reach it, and the headers of its answers."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import Any, Protocol
from urllib.parse import parse_qs

import anyio.to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from envport.errors import PermissionDenied, Unauthenticated
from envport.web.login import LOGIN, LOGOUT, cookie_name, logged_in, logged_out, login_page
from envport.web.viewer import VIEWER_KEY, Credentials, PageParts, Viewer

__all__ = ["PAGE_PATHS", "PageSurface", "page_is_installed"]

logger = logging.getLogger(__name__)

PAGE_PATHS = frozenset({"ui", "_nicegui", "_nicegui_ws"})
"""The first part of the page's own paths, beside `/`."""

_SOCKET = "/_nicegui_ws/"
_STATIC = "/_nicegui/"
_SCRIPT_TAG = re.compile(rb"<script(?=[\s>])")
_ANYWHERE = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


class PageEngine(Protocol):
    """What makes the page's answers; see `envport.web.engine`."""

    application: ASGIApp

    def owner_of(self, client_id: str) -> Viewer | None:
        """The viewer that a page was made for."""
        ...


def page_is_installed() -> bool:
    """Whether the extra `ui` is installed."""
    return find_spec("nicegui") is not None


def _policy(nonce: str) -> str:
    # Vue compiles templates in the browser, and NiceGUI evaluates event handlers, so 'unsafe-eval' stays. Quasar and
    # NiceGUI make style elements while they run.
    return (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'; object-src 'none'"
    )


class PageSurface:
    """ASGI application of the page. NiceGUI is imported at the first request of a browser.

    Args:
        parts: What is shown.
        public_url: Address of the gateway as clients see it, if it is behind a proxy.
    """

    def __init__(self, parts: PageParts, public_url: str | None = None):
        self._parts = parts
        self._public_url = public_url.rstrip("/") if public_url else None
        self._running: AsyncExitStack | None = None
        self._starting = asyncio.Lock()
        self._engine: PageEngine | None = None
        # NiceGUI belongs to another event loop of this process.
        self._elsewhere = False

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Serve the page while the gateway runs."""
        async with AsyncExitStack() as running:
            self._running = running
            try:
                yield
            finally:
                self._running = self._engine = None

    def serves(self, scope: Scope, *, wants_page: bool) -> bool:
        """Whether a request is the page's.

        Args:
            scope: The ASGI scope.
            wants_page: Whether the client asks for HTML by name.
        """
        path: str = scope["path"]
        if self._elsewhere:
            return False
        if path == "/":
            return scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and wants_page
        return path[1:].partition("/")[0] in PAGE_PATHS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose `Host` and `Origin` were checked."""
        path: str = scope["path"]
        if path in (LOGIN, LOGOUT):
            await self._log(scope, receive, send)
            return
        if path.startswith(_STATIC):
            # Files of NiceGUI, which anybody can download elsewhere.
            await self._serve(scope, receive, send)
            return
        headers = Headers(scope=scope)
        cookies = cookie_parser(headers.get("cookie", ""))
        credentials = Credentials(headers.get("authorization"), cookies.get(cookie_name(self._parts.access)))
        try:
            allowed = credentials.principal(self._parts.access) is not None
            problem = None
        except (Unauthenticated, PermissionDenied) as error:
            allowed, problem = False, str(error)
        if not allowed:
            refused = PlainTextResponse("Log in first", 403) if path.startswith(_SOCKET) else login_page(problem)
            await refused(scope, receive, send)
            return
        viewer = Viewer(self._parts, credentials, self._url(scope, headers), cookies)
        await self._serve({**scope, VIEWER_KEY: viewer}, receive, send)

    async def _log(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            answer = RedirectResponse("/", 303) if scope["type"] == "http" else PlainTextResponse("", 403)
        elif scope["path"] == LOGIN:
            secure = (self._public_url or scope["scheme"]).startswith("https")
            answer = await logged_in(Request(scope, receive), self._parts.access, secure=secure)
        else:
            answer = logged_out(self._parts.access)
        await answer(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        engine = await self._started()
        if engine is None:
            # The gateway answers from now on, with the plain page at `/`.
            answer = PlainTextResponse("", 403) if scope["type"] == "websocket" else RedirectResponse("/", 303)
            await answer(scope, receive, send)
            return
        if scope["path"].startswith(_SOCKET) and not _owns(scope, engine):
            await PlainTextResponse("This is not your page", 403)(scope, receive, send)
            return
        if scope["type"] == "http" and not scope["path"].startswith(_STATIC):
            scope = _plain(scope)
            send = _Guarded(send).send
        await engine.application(scope, receive, send)

    async def _started(self) -> PageEngine | None:
        async with self._starting:
            if self._engine is None and self._running is not None:
                # Importing NiceGUI takes a third of a second, in which episodes go on.
                entered = await anyio.to_thread.run_sync(_import_engine)
                self._engine = await self._running.enter_async_context(entered())
                self._elsewhere = self._engine is None
            return self._engine

    def _url(self, scope: Scope, headers: Headers) -> str:
        return self._public_url or f"{scope.get('scheme', 'http')}://{headers.get('host', '')}"


def _import_engine() -> Any:
    from envport.web.engine import running_engine

    return running_engine


def _owns(scope: Mapping[str, Any], engine: PageEngine) -> bool:
    """Whether a socket belongs to the viewer who got the page. Knowing the client id is not enough."""
    query: dict[str, list[str]] = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    mine: Viewer = scope[VIEWER_KEY]
    for client_id in query.get("client_id", []):
        owner = engine.owner_of(client_id)
        if owner is None:
            continue
        # The page may have been made with a token that is no longer valid.
        made_for = owner.credentials.principal(owner.parts.access)
        if owner.parts is not mine.parts or made_for is None or made_for.name != mine.principal.name:
            return False
    return True


def _plain(scope: Scope) -> Scope:
    """Without headers that would change the page: compression would hide its tags, a prefix would end up in them."""
    unread = (b"accept-encoding", b"x-forwarded-prefix")
    kept = [(name, value) for name, value in scope["headers"] if name not in unread]
    return {**scope, "headers": kept}


class _Guarded:
    """Adds the headers of security to an answer, and the nonce to the scripts of a page."""

    def __init__(self, send: Send):
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            for name, value in _ANYWHERE.items():
                headers[name] = value
            if headers.get("content-type", "").startswith("text/html"):
                self._start = message
                return
        if self._start is None:
            await self._send(message)
            return
        self._body += message.get("body", b"")
        if message.get("more_body", False):
            return
        nonce = secrets.token_urlsafe(16)
        # What environments say is in the page as JSON without `<`, so these are NiceGUI's own tags.
        body = _SCRIPT_TAG.sub(b'<script nonce="%s"' % nonce.encode(), self._body)
        headers = MutableHeaders(raw=self._start["headers"])
        headers["content-security-policy"] = _policy(nonce)
        headers["cross-origin-opener-policy"] = "same-origin"
        headers["cache-control"] = "no-store"
        headers["content-length"] = str(len(body))
        headers.add_vary_header("Accept")
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": body})
