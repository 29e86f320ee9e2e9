"""The routes of the Open Reward Standard's server: below the path of each environment, and at the root."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Scope

from envport.definition import EnvironmentDefinition, served
from envport.episodes import EpisodeTable, Opening, OpenRequest, while_connected
from envport.errors import EnvportError
from envport.surfaces import surface_environment, surface_principal
from envport_bridges.ors.messages import (
    OrsCall,
    OrsCreate,
    OrsError,
    OrsOverrides,
    OrsRange,
    OrsSplit,
    OrsTask,
    error_response,
    read_body,
    tools_answer,
)
from envport_bridges.ors.session import ServedOrsSession, terminal_tool
from envport_bridges.ors.sessions import OrsSessions, SessionKey
from envport_bridges.ors.stream import SSE_HEADERS, answer_events, sse
from envport_bridges.ors.tasks import open_request, splits_of, task_count, task_spec, task_specs

__all__ = ["REAP_SECONDS", "ors_root_surface", "ors_surface"]

logger = logging.getLogger(__name__)

REAP_SECONDS = 900.0
"""How long a session may be unused, as the protocol has it. Its clients ping every 10 s."""

_LONGEST_ID = 200
_STREAM = "text/event-stream"

_Environments = Callable[[Scope], Mapping[str, EnvironmentDefinition]]


def ors_surface(table: EpisodeTable, /, *, reap_seconds: float = REAP_SECONDS) -> Starlette:
    """Make the ASGI application that serves one environment: a `SurfaceFactory` for each environment.

    Args:
        table: The episodes.
        reap_seconds: How long a session may be unused before it is deleted.
    """
    return _Server(table, partial(_named, table), reap_seconds).app()


def ors_root_surface(table: EpisodeTable, /, *, reap_seconds: float = REAP_SECONDS) -> Starlette:
    """Make the ASGI application that serves all environments by name: a `SurfaceFactory` for the root.

    Args:
        table: The episodes.
        reap_seconds: How long a session may be unused before it is deleted.
    """
    return _Server(table, partial(_every, table), reap_seconds).app()


class _Server:
    def __init__(self, table: EpisodeTable, environments: _Environments, reap_seconds: float):
        self._table = table
        # Those that a request may be about.
        self._environments = environments
        self._sessions = OrsSessions(reap_seconds)

    def app(self) -> Starlette:
        """The application."""
        of_environment = [
            ("tools", self._tools, "GET"),
            ("splits", self._splits, "GET"),
            ("tasks", self._tasks, "POST"),
            ("num_tasks", self._num_tasks, "POST"),
            ("task", self._task, "POST"),
            ("task_range", self._task_range, "POST"),
            ("prompt", self._prompt, "GET"),
            ("messages", self._messages, "GET"),
            ("task_tools", self._task_tools, "GET"),
            ("call", self._call, "POST"),
            ("score_group", self._score_group, "POST"),
        ]
        return Starlette(
            routes=[
                Route("/health", _health),
                Route("/version", _version),
                Route("/list_environments", self._list),
                Route("/create_session", _create_session, methods=["POST"]),
                Route("/create", self._create, methods=["POST"]),
                Route("/ping", self._ping, methods=["POST"]),
                # So the client writes it if its URL ends with a slash.
                Route("//ping", self._ping, methods=["POST"]),
                Route("/delete", self._delete, methods=["POST"]),
                Route("/delete_session", self._delete, methods=["POST"]),
                *(Route(f"/{name}", serve, methods=[method]) for name, serve, method in of_environment),
                *(Route(f"/{{env_name}}/{name}", serve, methods=[method]) for name, serve, method in of_environment),
            ],
            exception_handlers={EnvportError: _refused, Exception: _broken},
        )

    async def _list(self, request: Request) -> Response:
        return JSONResponse(list(self._environments(request.scope)))

    async def _tools(self, request: Request) -> Response:
        spec = self._spec(request)
        return JSONResponse(tools_answer(spec.listing, terminal_tool(spec.tools)))

    async def _splits(self, request: Request) -> Response:
        return JSONResponse(splits_of(self._spec(request)))

    async def _tasks(self, request: Request) -> Response:
        spec, asked = self._spec(request), await read_body(OrsSplit, request)
        return JSONResponse({"tasks": await task_specs(spec, OrsRange(split=asked.split)), "env_name": spec.name})

    async def _task_range(self, request: Request) -> Response:
        spec = self._spec(request)
        return JSONResponse(
            {"tasks": await task_specs(spec, await read_body(OrsRange, request)), "env_name": spec.name}
        )

    async def _num_tasks(self, request: Request) -> Response:
        asked = await read_body(OrsSplit, request)
        return JSONResponse({"num_tasks": task_count(self._spec(request), asked.split)})

    async def _task(self, request: Request) -> Response:
        spec, asked = self._spec(request), await read_body(OrsTask, request)
        return JSONResponse({"task": task_spec(spec, asked.split, asked.index), "env_name": spec.name})

    async def _create(self, request: Request) -> Response:
        key, asked = _key(request), await read_body(OrsCreate, request)
        if asked.toolset_name is not None:
            raise OrsError(
                400, f"unknown toolset {asked.toolset_name!r}: an agent has the tools of its environment alone"
            )
        spec = self._spec(request, asked.env_name)
        opened = open_request(spec, asked, key[0], _secrets(request))
        same = hashlib.sha256(await request.body() + repr((spec.name, sorted(opened.secrets.items()))).encode())
        session = await self._sessions.create(key, same.digest(), partial(self._open, request, opened))
        return JSONResponse({"sid": key[1], "episode_id": session.handle})

    async def _open(self, request: Request, opened: OpenRequest) -> ServedOrsSession:
        undo = partial(self._undo, opened.principal)
        opening = await while_connected(request.receive, partial(self._table.open, opened), undo)
        return ServedOrsSession(self._table, opened.principal, opening)

    async def _undo(self, principal: str, opening: Opening) -> None:
        await self._table.close(opening.handle, principal)

    async def _ping(self, request: Request) -> Response:
        await self._session(request).keep_alive()
        return JSONResponse({"status": "ok"})

    async def _delete(self, request: Request) -> Response:
        key = _key(request)
        await self._sessions.delete(key)
        return JSONResponse({"sid": key[1]})

    async def _prompt(self, request: Request) -> Response:
        return JSONResponse(await self._session(request).prompt())

    async def _messages(self, request: Request) -> Response:
        blocks = await self._session(request).prompt()
        return JSONResponse([{"role": "user", "blocks": blocks, "detail": None}])

    async def _task_tools(self, request: Request) -> Response:
        return JSONResponse(self._session(request).tools)

    async def _call(self, request: Request) -> Response:
        session, asked = self._session(request), await read_body(OrsCall, request)
        task_id = asked.task_id or session.call(asked.name, asked.input)
        call = session.begun(task_id)
        if call is None:
            return _stream(sse("error", "unknown task_id: answers are kept for a minute"))
        return StreamingResponse(answer_events(task_id, call), media_type=_STREAM, headers=SSE_HEADERS)

    async def _score_group(self, request: Request) -> Response:
        raise OrsError(404, f"Environment {self._spec(request).name!r} does not implement score_group")

    def _session(self, request: Request) -> ServedOrsSession:
        session = self._sessions.find(_key(request))
        if session is None:
            raise OrsError(404, "Active environment not found: there is no such session, or it was deleted")
        return session

    def _spec(self, request: Request, named: str | None = None) -> EnvironmentDefinition:
        """The environment that a request is about.

        Its path or its body names it; or else the header `X-Deployment`, in which the client sends the name that it
        was made with. Without any of these, it is the first one, as the protocol has it.
        """
        environments = self._environments(request.scope)
        name = named or request.path_params.get("env_name")
        if name is None:
            deployment = request.headers.get("x-deployment", "").rpartition("/")[2]
            name = deployment if deployment and len(environments) > 1 else next(iter(environments))
        return served(environments, name)


def _named(table: EpisodeTable, scope: Scope) -> Mapping[str, EnvironmentDefinition]:
    spec = table.environment(surface_environment(scope))
    return {spec.name: spec}


def _every(table: EpisodeTable, scope: Scope) -> Mapping[str, EnvironmentDefinition]:
    return table.environments


def _key(request: Request) -> SessionKey:
    sid = request.headers.get("x-session-id", "").strip()
    if not sid:
        raise OrsError(400, "X-Session-ID header is required")
    if len(sid) > _LONGEST_ID or not sid.isprintable():
        raise OrsError(400, f"X-Session-ID has to be printable, of at most {_LONGEST_ID} characters")
    return surface_principal(request.scope).name, sid


def _secrets(request: Request) -> dict[str, str]:
    """The secrets for the environment. The client adds its own key, which is for the gateway and for nobody else."""
    raw = request.headers.get("x-secrets")
    if not raw:
        return {}
    try:
        read: Any = json.loads(base64.b64decode(raw, validate=True))
        given = {name: entry["value"] for name, entry in cast("Mapping[str, Any]", read).items()}
    except (binascii.Error, ValueError, AttributeError, KeyError, TypeError):
        raise OrsError(400, "X-Secrets has to be base64 of a JSON object: the value of each secret by name") from None
    # They are empty if it has none.
    keys = (request.headers.get("x-api-key", ""), request.headers.get("authorization", "").partition(" ")[2])
    return {name: value for name, value in given.items() if value not in keys}


def _stream(*events: bytes) -> Response:
    return Response(b"".join(events), media_type=_STREAM, headers=SSE_HEADERS)


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _version(request: Request) -> Response:
    return JSONResponse({"version": f"envport {version('envport')}", "build_sha": None})


async def _create_session(request: Request) -> Response:
    """A new id. Nothing is kept of it: the session begins when it is created with a task."""
    if await request.body() and (await read_body(OrsOverrides, request)).env:
        raise OrsError(400, "env cannot be overridden: an environment takes secrets alone")
    return _stream(sse("task_id", secrets.token_urlsafe(24)), sse("end", ""))


async def _refused(request: Request, error: Exception) -> Response:
    return error_response(cast("EnvportError", error))


async def _broken(request: Request, error: Exception) -> Response:
    logger.exception("%s %s broke the ORS surface", request.method, request.url.path, exc_info=error)
    return JSONResponse({"detail": "The gateway broke; see its log."}, 500)
