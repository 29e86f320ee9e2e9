"""The model's address as an ASGI application: who asks, in which API, and what each is answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from envport.access import HostPolicy
from envport.errors import InvalidOption
from envport_bridges.agents.apis.anthropic_messages import AnthropicMessages
from envport_bridges.agents.apis.chat_completions import ChatCompletions
from envport_bridges.agents.apis.openai_responses import OpenaiResponses
from envport_bridges.agents.apis.reading import invalid, object_of
from envport_bridges.agents.apis.requests import ModelApi, ModelReply, ModelRequest, RequestRefused
from envport_bridges.agents.apis.wire import decoded, encoded
from envport_bridges.agents.model.replying import ReplySource
from envport_bridges.agents.model.session_control import SessionControl
from envport_bridges.agents.model.sessions import SESSION_TOKEN, ModelSession

__all__ = ["EndpointLimits", "ModelSurface"]

logger = logging.getLogger(__name__)

_CHAT, _MESSAGES, _RESPONSES = ChatCompletions(), AnthropicMessages(), OpenaiResponses()
_APIS: dict[str, ModelApi] = {api.path: api for api in (_CHAT, _MESSAGES, _RESPONSES)}
_MODELS = "/v1/models"
_PAGE = "bridges/envport_bridges/agents/MODEL_API.md"
# Both of the SDKs with typed answers find what they expect.
_MODEL = {
    "object": "model",
    "type": "model",
    "created": 0,
    "created_at": "1970-01-01T00:00:00Z",
    "owned_by": "envport",
}


@dataclass(frozen=True)
class EndpointLimits:
    """What one session may ask for.

    Attributes:
        body_bytes: Largest body of a request.
        waiting: Most requests that wait for an answer at the same time.
    """

    body_bytes: int = 32 << 20
    waiting: int = 16


class ModelSurface:
    """Answers requests of agents in all APIs. All of its methods are called in one event loop.

    Args:
        source: Who writes the turns.
        hosts: Which `Host` headers are answered.
        limits: What one session may ask for.
        control: Begins and ends sessions by requests, if they may do that.
    """

    def __init__(
        self, source: ReplySource, hosts: HostPolicy, limits: EndpointLimits, control: SessionControl | None = None
    ):
        self._source = source
        self._hosts = hosts
        self._limits = limits
        # Keyed by the hash of the token, so that the time of a failed lookup reveals nothing about valid tokens.
        self._sessions: dict[bytes, ModelSession] = {}
        self._running: dict[ModelSession, set[asyncio.Task[object]]] = {}
        self._anyone: ModelSession | None = None
        self._control = control
        if control is not None:
            control.attach(self)

    def open(self, session: ModelSession) -> None:
        """Answer the requests of a session.

        Raises:
            InvalidOption: Another open session has its token.
        """
        if _key(session.token) in self._sessions:
            raise InvalidOption("the token of a model's session is in use by another one")
        self._running[session] = set()
        self._sessions[_key(session.token)] = session

    def open_to_all(self, session: ModelSession) -> None:
        """Answer requests that have no session's token as those of this session."""
        self._running[session] = set()
        self._anyone = session

    async def end(self, session: ModelSession) -> None:
        """Cancel the requests of a session that are running; it gets no more answers. Waits for them to end."""
        self._sessions.pop(_key(session.token), None)
        session.open = False
        running = self._running.pop(session, set())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def end_all(self) -> None:
        """End all sessions."""
        await asyncio.gather(*(self.end(session) for session in list(self._running)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an HTTP request."""
        headers = Headers(scope=scope)
        api = _api_of(scope["path"], headers)
        try:
            response = await self._answer(scope, headers, api, receive)
        except RequestRefused as refused:
            response = _refusal(api, refused)
        except Exception:
            logger.exception("a request of an agent could not be answered")
            fault = "the model has failed; the log of the process that serves it says how"
            response = _refusal(api, RequestRefused(500, "server_error", fault))
        if response is not None:
            await response(scope, receive, send)

    async def _answer(self, scope: Scope, headers: Headers, api: ModelApi, receive: Receive) -> Response | None:
        """The answer; `None` if the client has left."""
        if not self._hosts.allows_host(headers.get("host")):
            raise RequestRefused(421, "unknown_host", "this server does not answer for that Host")
        path, method = scope["path"], scope["method"]
        reads = method in ("GET", "HEAD")
        if path == "/" and reads:
            # Agents look whether there is a server.
            return PlainTextResponse("The address of a model. See /v1/models.\n")
        if self._control is not None and (answered := await self._control.answer(self, scope, receive)) is not None:
            return answered
        session = self._session_of(headers)
        with _counted(session):
            if path in _APIS:
                if method != "POST":
                    raise RequestRefused(405, "method_not_allowed", f"{path} takes POST, not {method}")
                return await self._turn(session, api, headers, receive)
            if reads and (path == _MODELS or path.startswith(f"{_MODELS}/")):
                return _models(path)
            raise RequestRefused(404, "not_found", f"there is no {path}; there are {', '.join([*_APIS, _MODELS])}")

    def find(self, headers: Headers) -> ModelSession | None:
        """The session of a request, if it has one."""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        tokens = (bearer.strip() if scheme.lower() == "bearer" else "", headers.get("x-api-key", ""))
        for token in tokens:
            if token and (session := self._sessions.get(_key(token))):
                return session
        return None if any(token.startswith(SESSION_TOKEN) for token in tokens) else self._anyone

    def _session_of(self, headers: Headers) -> ModelSession:
        if session := self.find(headers):
            return session
        raise RequestRefused(
            401, "invalid_api_key", "the API key is of no episode that is open (Authorization: Bearer, or x-api-key)"
        )

    async def _turn(self, session: ModelSession, api: ModelApi, headers: Headers, receive: Receive) -> Response | None:
        if session.waiting >= self._limits.waiting:
            most = f"{self._limits.waiting} requests of this episode wait for an answer, which is the most"
            raise RequestRefused(429, "too_many_requests", most)
        with self._run(session):
            try:
                return await self._reply(session, api, headers, receive)
            except asyncio.CancelledError:
                if session.open:
                    raise
                raise _ended() from None

    @contextmanager
    def _run(self, session: ModelSession) -> Generator[None]:
        """Let a request be cancelled when its session ends."""
        task = asyncio.current_task()
        running = self._running[session]
        if task is not None:
            running.add(task)
        session.waiting += 1
        try:
            yield
        finally:
            session.waiting -= 1
            running.discard(task)  # pyright: ignore[reportArgumentType]

    async def _reply(self, session: ModelSession, api: ModelApi, headers: Headers, receive: Receive) -> Response | None:
        if headers.get("content-encoding", "identity") != "identity":
            raise RequestRefused(415, "unsupported_media_type", "the body has to be sent without Content-Encoding")
        body = await self._body(receive)
        if body is None:
            return None
        request = api.read(_parsed(body))
        ignored = self._tell(session, request)
        # Also those that were written for nobody, because the agent did not wait.
        if max(session.turns, session.totals.turns) >= session.max_calls:
            most = f"the model has written {session.max_calls} turns for this episode, which is the most"
            raise RequestRefused(400, "budget_exceeded", most)
        session.turns += 1
        answered = False
        try:
            reply = await self._reply_or_leave(session, request, headers, receive)
            if reply is None:
                return None
            response = _response(api, request, reply, ignored)
            answered = True
            return response
        finally:
            session.turns -= not answered

    async def _body(self, receive: Receive) -> bytes | None:
        """The body of a request; `None` if the client leaves before its end."""
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            if size > self._limits.body_bytes:
                most = f"the body has more than {self._limits.body_bytes} bytes, which is the most"
                raise RequestRefused(413, "request_too_large", most)
            more = message.get("more_body", False)
        return b"".join(parts)

    async def _reply_or_leave(
        self, session: ModelSession, request: ModelRequest, headers: Headers, receive: Receive
    ) -> ModelReply | None:
        """The next turn; `None` if the client leaves before it is written."""
        reply = asyncio.ensure_future(self._source.reply(session, request, resent=_resent(headers)))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((reply, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                return None
            if reply.cancelled():
                raise RuntimeError("the source of replies has cancelled its own work") if session.open else _ended()
            return reply.result()
        finally:
            reply.cancel()
            leaving.cancel()
            await asyncio.gather(reply, leaving, return_exceptions=True)

    def _tell(self, session: ModelSession, request: ModelRequest) -> str:
        """Count the settings that are not honoured, and log each once."""
        for name in request.ignored:
            session.ignored[name] += 1
            _log_once(name)
        return ", ".join(request.ignored)


# Once in a process, because a training has an endpoint for each batch.
@cache
def _log_once(name: str) -> None:
    logger.warning("agents set %s, which is not honoured: see %s", name, _PAGE)


def _ended() -> RequestRefused:
    return RequestRefused(401, "session_ended", "the episode of this API key has ended: its agent is to stop")


def _key(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def _api_of(path: str, headers: Headers) -> ModelApi:
    """The API that a request is meant for, in whose form it is answered also if there is no such path."""
    if path.startswith(_MESSAGES.path) or "anthropic-version" in headers:
        return _APIS.get(path, _MESSAGES)
    return _APIS.get(path, _CHAT)


@contextmanager
def _counted(session: ModelSession) -> Generator[None]:
    try:
        yield
    except RequestRefused as refused:
        session.refused[refused.code] += 1
        raise


def _parsed(body: bytes) -> dict[str, object]:
    try:
        value = decoded(body)
    except ValueError as error:
        raise invalid(f"the body is not JSON: {error}") from None
    return object_of(value, "the body")


def _resent(headers: Headers) -> bool | None:
    count = headers.get("x-stainless-retry-count")
    return None if count is None else count.strip() not in ("", "0")


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _models(path: str) -> Response:
    name = path.removeprefix(_MODELS).strip("/")
    model = _MODEL | {"id": name or "policy", "display_name": name or "policy"}
    listed = {"object": "list", "data": [model], "has_more": False, "first_id": "policy", "last_id": "policy"}
    return _json(model if name else listed, 200)


def _response(api: ModelApi, request: ModelRequest, reply: ModelReply, ignored: str) -> Response:
    headers = {"envport-ignored": ignored} if ignored else {}
    if not request.stream:
        return _json(api.answer(request, reply), 200, headers)
    # A turn is told apart from its tool calls when all of it is there, so nothing is gained by more than one piece.
    events = "".join(api.events(request, reply))
    return Response(events, media_type="text/event-stream", headers={**headers, "cache-control": "no-cache"})


def _refusal(api: ModelApi, refused: RequestRefused) -> Response:
    headers = {429: {"retry-after": "1"}, 401: {"www-authenticate": "Bearer"}, 405: {"allow": "POST"}}
    return _json(api.error(refused), refused.status, headers.get(refused.status))


def _json(value: object, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(encoded(value), status, headers, "application/json")
