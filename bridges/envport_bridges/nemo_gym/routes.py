"""The routes of a resources server of NeMo Gym: below the path of each environment, and at the root."""

from __future__ import annotations

import logging
import re
from functools import partial
from http import HTTPStatus
from typing import Any

from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from envport.definition import EnvironmentDefinition, served
from envport.episodes import EpisodeTable, Found, Opening, OpenRequest, resolve, while_connected
from envport.errors import EnvportError, EpisodeFailed, InvalidRequest, UnknownEpisode
from envport.surfaces import SurfaceApp, error_answer, surface_environment, surface_episode_token, surface_principal
from envport.types import Choice, EpisodeInfo
from envport_bridges.endings import finish_unless_lost
from envport_bridges.nemo_gym.messages import (
    RowChoice,
    SeedRequest,
    VerifyRequest,
    fields_of,
    read_object,
    refuse_foreign_tools,
    shown_text,
)
from envport_bridges.nemo_gym.metrics import AggregateRequest, aggregate
from envport_bridges.nemo_gym.session import COOKIE, NemoGymSession, SessionCookies, set_cookie

__all__ = ["MAX_TRAJECTORY", "nemo_gym_root_surface", "nemo_gym_surface"]

logger = logging.getLogger(__name__)

MAX_TRAJECTORY = 64 * 2**20
"""The most bytes of a request. `/verify` gets the whole trajectory, in training with the ids of its tokens."""

_JSON = "application/json"
_TOOL_ERROR = HTTPStatus.BAD_REQUEST
_ROLLOUT_PREFIX = re.compile(r"/ng-rollout/[A-Za-z0-9][A-Za-z0-9._-]*(/.*)")


def nemo_gym_surface(table: EpisodeTable, /) -> SurfaceApp:
    """Make the application that serves one environment: a `SurfaceFactory` for each environment.

    Args:
        table: The episodes.
    """
    return _Server(table, at_root=False).surface()


def nemo_gym_root_surface(table: EpisodeTable, /) -> SurfaceApp:
    """Make the application that serves all environments: a `SurfaceFactory` for the root.

    Args:
        table: The episodes.
    """
    return _Server(table, at_root=True).surface()


class _Server:
    def __init__(self, table: EpisodeTable, *, at_root: bool):
        self._table = table
        self._at_root = at_root

    def surface(self) -> SurfaceApp:
        """The application."""
        app = Starlette(
            routes=[
                Route("/", _alive),
                Route("/seed_session", self._seed, methods=["POST"]),
                Route("/verify", self._verify, methods=["POST"]),
                Route("/aggregate_metrics", _aggregate, methods=["POST"]),
                Route("/reverify_mode", _reverify_mode),
                # A model may name what is no tool, and everything that it names is posted to.
                Route("/{tool:path}", self._tool, methods=["POST"]),
            ],
            exception_handlers={EnvportError: _refused, Exception: _broken},
        )
        return SurfaceApp(_WithoutRolloutPrefix(SessionCookies(app)), MAX_TRAJECTORY, COOKIE)

    async def _seed(self, request: Request) -> Response:
        if COOKIE in request.cookies:
            raise InvalidRequest(
                f"a session has one episode, and this request bears the cookie {COOKIE} of one: seed a new session "
                "without it"
            )
        row = fields_of(SeedRequest, read_object(await request.body(), "a row"))
        choice = row.verifier_metadata.envport
        spec = self._environment(request.scope, choice)
        start = resolve(spec, choice.choice)
        choice.check(start)
        refuse_foreign_tools(row.responses_create_params, start.tools)
        task = start.task_index if start.task_index is not None else start.task
        principal = surface_principal(request.scope).name
        asked = OpenRequest(spec.name, principal, Choice(start.split, task, start.seed), labels=choice.labels)
        undo = partial(self._undo, principal)
        opening = await while_connected(request.receive, partial(self._table.open, asked), undo)
        begun = NemoGymSession.begun(opening.handle, choice)
        return JSONResponse(
            {"mcp": _mcp(request.scope, opening), "episode_id": opening.handle, "seed": opening.seed},
            headers={"Set-Cookie": set_cookie(begun.cookie)},
        )

    async def _undo(self, principal: str, opening: Opening) -> None:
        await self._table.close(opening.handle, principal)

    async def _tool(self, request: Request) -> Response:
        """Call a tool. The answer is text, because agents show it to their model as it is."""
        session = NemoGymSession.of(request.cookies)
        try:
            return await self._called(request, session)
        except EnvportError as error:
            return PlainTextResponse(str(error), (await error_answer(request, error)).status_code)

    async def _called(self, request: Request, session: NemoGymSession) -> Response:
        found = self._table.find(session.handle, surface_principal(request.scope).name)
        self._require_here(request.scope, found.spec.name)
        arguments = read_object(await request.body() or b"{}", "the arguments of a call")
        call = partial(self._table.call, found, request.path_params["tool"], arguments)
        result = await (call() if self._table.at_once(found) else while_connected(request.receive, call))
        status = _TOOL_ERROR if result.is_error else HTTPStatus.OK
        return PlainTextResponse(shown_text(result.observation.content), status)

    async def _verify(self, request: Request) -> Response:
        verified = await self._verified(request, NemoGymSession.of(request.cookies))
        return Response(to_json(verified), media_type=_JSON)

    async def _verified(self, request: Request, session: NemoGymSession) -> dict[str, Any]:
        row = read_object(await request.body(), "a row with its response")
        asked = fields_of(VerifyRequest, row)
        choice = asked.verifier_metadata.envport
        session.require(choice)
        principal = surface_principal(request.scope).name
        info = await self._table.info(session.handle, principal)
        self._require_here(request.scope, info.environment)
        found = Found(session.handle, principal, self._table.environment(info.environment))
        try:
            return {**row, **_scored(await finish_unless_lost(self._table, found))}
        except EpisodeFailed as lost:
            if choice.on_loss != "mask":
                raise
            return {**row, **_masked(session.handle, lost)}

    def _environment(self, scope: Scope, choice: RowChoice) -> EnvironmentDefinition:
        """The environment that a row is for.

        Raises:
            InvalidRequest: The row is for another one, or does not say for which.
            UnknownEnvironment: It is not served.
        """
        if not self._at_root:
            spec = self._table.environment(surface_environment(scope))
            if choice.environment not in (None, spec.name):
                raise InvalidRequest(f"this row is for the environment {choice.environment!r}, and not {spec.name!r}")
            return spec
        environments = self._table.environments
        if choice.environment is None and len(environments) > 1:
            raise InvalidRequest(
                "several environments are served here, so verifier_metadata.envport.environment has to name one: "
                f"{', '.join(map(repr, environments))}"
            )
        return served(environments, choice.environment or next(iter(environments)))

    def _require_here(self, scope: Scope, environment: str) -> None:
        if not self._at_root and environment != surface_environment(scope):
            raise UnknownEpisode


def _mcp(scope: Scope, opening: Opening) -> dict[str, Any]:
    """Where an agent plays the episode over MCP, and nothing else."""
    headers = {"Envport-Episode": opening.handle}
    if (token := surface_episode_token(scope, opening.handle)) is not None:
        headers["Authorization"] = f"Bearer {token}"
    return {"server_name": opening.spec.name, "url_path": "/mcp", "transport": "http", "headers": headers}


def _scored(info: EpisodeInfo) -> dict[str, Any]:
    return {
        # An end without any reward counts as 0, as in training with our own bridge.
        "reward": info.reward or 0.0,
        "episode_id": info.episode_id,
        "outcome": info.outcome.reason if info.outcome is not None else None,
        "steps": info.steps,
        "tool_errors": info.errors,
    }


def _masked(handle: str, lost: EpisodeFailed) -> dict[str, Any]:
    """What NeMo Gym writes to its file of failures, and NeMo RL leaves out of the loss."""
    return {
        # The protocol has no answer without a reward. This one counts nowhere.
        "reward": 0.0,
        "episode_id": handle,
        "outcome": lost.reason,
        "mask_sample": True,
        "failure_reason": str(lost),
        "_ng_failure_class": f"envport_{lost.fault}",
    }


async def _alive(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _aggregate(request: Request) -> Response:
    asked = fields_of(AggregateRequest, read_object(await request.body(), "the body"))
    return JSONResponse(aggregate(asked.verify_responses))


async def _reverify_mode(request: Request) -> Response:
    # A reward comes from the episode, which is gone, and not from the trajectory.
    return JSONResponse("unsupported")


async def _refused(request: Request, error: Exception) -> Response:
    return await error_answer(request, error)


async def _broken(request: Request, error: Exception) -> Response:
    logger.exception("%s %s broke the NeMo Gym surface", request.method, request.url.path, exc_info=error)
    return JSONResponse({"error": {"code": "internal", "message": "The gateway broke; see its log."}}, 500)


class _WithoutRolloutPrefix:
    """Takes away the prefix that NeMo Gym puts before a path when it records its calls."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root = scope.get("root_path", "")
        match = _ROLLOUT_PREFIX.fullmatch(scope["path"].removeprefix(root))
        await self._app({**scope, "path": root + match[1]} if match is not None else scope, receive, send)
