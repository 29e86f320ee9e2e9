"""The routes of OpenEnv's server, below the path of each environment."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, cast

from mcp_types import INVALID_PARAMS
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from envport.definition import EnvironmentDefinition
from envport.episodes import EpisodeTable
from envport.errors import EnvportError, RequestError
from envport.surfaces import error_answer, surface_environment, surface_principal
from envport_bridges.openenv.actions import action_schema
from envport_bridges.openenv.frames import OpenEnvError, read_object
from envport_bridges.openenv.rpc import answer_rpc, rpc_error, rpc_result
from envport_bridges.openenv.session import OpenEnvSession
from envport_bridges.openenv.socket import OpenEnvSocket

__all__ = ["openenv_surface"]

_MOST_SESSIONS = 10_000
_OBSERVATION = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "content": {"type": "array", "items": {"type": "object"}},
        "structured_content": {"type": ["object", "null"]},
    },
}
_STATE = {
    "type": "object",
    "properties": {"episode_id": {"type": ["string", "null"]}, "step_count": {"type": "integer"}},
}

_Key = tuple[str, str, str]


def openenv_surface(table: EpisodeTable, /) -> Starlette:
    """Make the ASGI application that speaks OpenEnv's protocol: a `SurfaceFactory` for each environment.

    Args:
        table: The episodes.
    """
    return _Server(table).app()


class _Server:
    def __init__(self, table: EpisodeTable):
        self._table = table
        # Sessions that were made over HTTP, for the WebSocket that follows. They hold no episode until it resets.
        self._sessions: OrderedDict[_Key, OpenEnvSession] = OrderedDict()

    def app(self) -> Starlette:
        """The application."""
        return Starlette(
            routes=[
                Route("/health", _health),
                Route("/metadata", self._metadata),
                Route("/schema", self._schema),
                Route("/state", self._state),
                Route("/reset", self._reset, methods=["POST"]),
                Route("/step", self._step, methods=["POST"]),
                Route("/mcp", self._mcp, methods=["POST"]),
                WebSocketRoute("/ws", _Endpoint(self._play)),
            ],
            exception_handlers={OpenEnvError: _malformed, EnvportError: error_answer},
        )

    def _spec(self, scope: Scope) -> EnvironmentDefinition:
        return self._table.environment(surface_environment(scope))

    def _session(self, scope: Scope) -> OpenEnvSession:
        return OpenEnvSession(self._table, surface_principal(scope).name, self._spec(scope))

    async def _metadata(self, request: Request) -> Response:
        spec = self._spec(request.scope)
        return JSONResponse(
            {
                "name": spec.name,
                "description": spec.description,
                "readme_content": None,
                "version": spec.cls.version,
                "author": None,
                "documentation_url": None,
            }
        )

    async def _schema(self, request: Request) -> Response:
        action = action_schema(self._spec(request.scope).listing)
        return JSONResponse({"action": action, "observation": _OBSERVATION, "state": _STATE})

    async def _reset(self, request: Request) -> Response:
        session = self._session(request.scope)
        opening = await session.open(await _body(request, empty=True))
        return JSONResponse(session.begin(opening))

    async def _step(self, request: Request) -> Response:
        body = await _body(request)
        session = await self._adopted(request.scope, body.get("episode_id"))
        action = body.get("action")
        if type(action) is not dict:
            raise OpenEnvError("VALIDATION_ERROR", "action has to be an object")
        return JSONResponse(await session.step(cast("dict[str, Any]", action)))

    async def _state(self, request: Request) -> Response:
        session = await self._adopted(request.scope, request.query_params.get("episode_id"))
        return JSONResponse(session.state)

    async def _adopted(self, scope: Scope, handle: Any) -> OpenEnvSession:
        if type(handle) is not str:
            raise OpenEnvError(
                "VALIDATION_ERROR",
                "over HTTP, episode_id has to name the episode: it is in the metadata of what /reset answers. Or play "
                "over /ws, where a connection has one episode",
            )
        session = self._session(scope)
        await session.adopt(handle)
        return session

    async def _mcp(self, request: Request) -> Response:
        body = await _body(request)
        params: Any = body.get("params") or {}
        name = cast("dict[str, Any]", params).get("session_id") if type(params) is dict else None
        if body.get("method") == "openenv/session/create":
            return JSONResponse(rpc_result(body, {"session_id": self._create(request.scope)}))
        key = self._key(request.scope, name)
        session = self._sessions.get(key)
        if session is None:
            return JSONResponse(rpc_error(body, INVALID_PARAMS, "there is no such session_id: create one first"))
        if body.get("method") == "openenv/session/close":
            del self._sessions[key]
            await session.close()
            return JSONResponse(rpc_result(body, {"closed": True}))
        return JSONResponse(await answer_rpc(session, body))

    def _create(self, scope: Scope) -> str:
        name = secrets.token_urlsafe(24)
        self._sessions[self._key(scope, name)] = self._session(scope)
        if len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return name

    def _key(self, scope: Scope, name: Any) -> _Key:
        return surface_principal(scope).name, surface_environment(scope), name if type(name) is str else ""

    async def _play(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = QueryParams(scope["query_string"]).get("session_id")
        try:
            session = self._session(scope) if name is None else self._sessions.get(self._key(scope, name))
            if session is None:
                raise RequestError("there is no such session_id: create one first")
        except RequestError as error:
            # An answer before a WebSocket is accepted refuses it.
            await JSONResponse({"detail": str(error)}, 404)(scope, receive, send)
            return
        try:
            await OpenEnvSocket(self._table, session, receive, send).serve()
        finally:
            if name is not None:
                self._sessions.pop(self._key(scope, name), None)


class _Endpoint:
    """An ASGI application, as Starlette's routes take one."""

    def __init__(self, serve: Callable[[Scope, Receive, Send], Awaitable[None]]):
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(scope, receive, send)


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "healthy"})


async def _body(request: Request, *, empty: bool = False) -> dict[str, Any]:
    data = await request.body()
    return {} if empty and not data else read_object(data, "the body")


async def _malformed(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": str(error)}, status_code=422)
