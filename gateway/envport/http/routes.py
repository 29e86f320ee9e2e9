"""The routes of the control plane."""

from collections.abc import MutableMapping
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from starlette.responses import PlainTextResponse

from envport.access import ANYONE, Access, Principal
from envport.definition import EnvironmentDefinition
from envport.episodes import (
    EpisodeTable,
    ForkFields,
    OpenFields,
    Opening,
    RecordedEpisodes,
    TaskFields,
    environment_info,
    task_page,
    while_connected,
)
from envport.errors import (
    AtCapacity,
    EpisodeFailed,
    InvalidRequest,
    Resuming,
    StoreUnavailable,
    UnknownEnvironment,
    UnknownEpisode,
)
from envport.http.problems import ANYWHERE, add_error_handlers, describe_refusals, refusals
from envport.http.welcome import WELCOME, welcome
from envport.trajectories import Archive
from envport.types import (
    Choice,
    EnvironmentInfo,
    EpisodeInfo,
    LegalCalls,
    OpenedEpisode,
    TaskPage,
    Trajectory,
)

__all__ = ["PRINCIPAL_KEY", "ControlPlane", "control_plane"]

PRINCIPAL_KEY = "envport.principal"
"""The key under which the gate puts the principal into the ASGI scope."""

PROBES = frozenset({"/healthz", "/readyz"})
"""Routes that need no token."""

METRICS = "/metrics"
"""The route that a token with only the scope `metrics` may use, too."""

_PAGE = 1_000


class MetricsSource(Protocol):
    """The source of what `/metrics` returns."""

    async def expose(self, accept: str) -> tuple[bytes, str]:
        """The metrics as text, and the media type.

        Args:
            accept: The request's `Accept` header.
        """
        ...


class ControlPlane:
    """The objects that the routes use.

    Args:
        table: The table of episodes.
        access: Mints tokens for single episodes.
        metrics: The source of the metrics.
        public_url: Address of the gateway as clients see it. If not given, the address of each request is used.
        archive: The recorded episodes, if there is a trajectory store.
    """

    def __init__(
        self,
        table: EpisodeTable,
        access: Access,
        metrics: MetricsSource,
        public_url: str | None = None,
        archive: Archive | None = None,
    ):
        self.table = table
        self.recorded = RecordedEpisodes(table, archive)
        self.access = access
        self.metrics = metrics
        self.public_url = public_url.rstrip("/") if public_url else None
        self.ready = False

    @property
    def capacity(self) -> int:
        """How many episodes may be live."""
        return self.table.limits.max_episodes

    def readiness(self) -> tuple[str, str | None]:
        """The status of the gateway, and the reason if it does not accept new episodes of every environment."""
        if not self.ready:
            return "stopping", "the gateway is not running"
        if self.table.draining:
            return "draining", "the gateway is being stopped: episodes are played on, new ones are not taken"
        found = [it.status for it in self.table.preparations.values()]
        if failed := found.count("failed"):
            return "unavailable", f"{failed} of {len(found)} environments cannot be run"
        if preparing := found.count("preparing"):
            return "preparing", f"{preparing} of {len(found)} environments are being prepared"
        return "ready", None

    def url(self, request: Request, path: str) -> str:
        """An address of this gateway."""
        return f"{self.public_url or str(request.base_url).rstrip('/')}{path}"

    def describe(self, request: Request, spec: EnvironmentDefinition) -> EnvironmentInfo:
        """The full description of an environment."""
        mcp_url = self.url(request, f"/environments/{spec.name}/mcp")
        return environment_info(spec, self.table.limits, mcp_url, replicated=self.table.replicated)

    def opened(self, request: Request, opening: Opening, token: str | None = None) -> OpenedEpisode:
        """The answer to a request that opened or reset an episode."""
        return OpenedEpisode(
            episode_id=opening.handle,
            mcp_url=self.url(request, f"/episodes/{opening.handle}/mcp"),
            prompt=opening.prompt,
            observation=opening.observation,
            seed=opening.seed,
            fingerprint=opening.tools.fingerprint,
            tools=opening.tools.listing if opening.spec.tools_vary else None,
            token=token,
        )


def _plane(request: Request) -> ControlPlane:
    return request.app.state.plane


def _principal(request: Request) -> Principal:
    principal: Principal = request.scope.get(PRINCIPAL_KEY, ANYONE)
    return principal


Plane = Annotated[ControlPlane, Depends(_plane)]
CallingPrincipal = Annotated[Principal, Depends(_principal)]

router = APIRouter(responses=ANYWHERE)
_NOT_READY: dict[str, Any] = {
    "description": "Not ready, in the same form; the field `reason` says why.",
    "content": {"application/json": {"schema": {"type": "object"}}},
}
_UNKNOWN_EPISODE = refusals(UnknownEpisode)
# In a cluster, the machine of an episode may be lost.
_EPISODE = refusals(UnknownEpisode, EpisodeFailed, Resuming)


@router.get("/environments", tags=["environments"])
async def list_environments(request: Request, plane: Plane) -> list[EnvironmentInfo]:
    """The environments that are served."""
    return [plane.describe(request, spec) for spec in plane.table.environments.values()]


@router.get("/environments/{name}", tags=["environments"], responses=refusals(UnknownEnvironment))
async def describe_environment(name: str, request: Request, plane: Plane) -> EnvironmentInfo:
    """One environment: its tools, splits and limits."""
    return plane.describe(request, plane.table.environment(name))


@router.get(
    "/environments/{name}/tasks",
    tags=["environments"],
    responses=refusals(UnknownEnvironment, InvalidRequest, EpisodeFailed),
)
async def list_tasks(
    name: str,
    plane: Plane,
    split: Annotated[str | None, Query(description="The first split if not given.")] = None,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=_PAGE)] = 100,
) -> TaskPage:
    """The tasks of a split, by page, with the tool listings of tasks that have tools of their own."""
    spec = plane.table.environment(name)
    chosen = split if split is not None else spec.default_split
    if chosen is None:
        return TaskPage(split="", total=0, offset=offset, tasks=[])
    return await task_page(spec, chosen, offset, limit)


@router.post(
    "/episodes",
    status_code=201,
    tags=["episodes"],
    responses=refusals(UnknownEnvironment, InvalidRequest, AtCapacity, EpisodeFailed, body=True),
)
async def open_episode(body: OpenFields, request: Request, plane: Plane, caller: CallingPrincipal) -> OpenedEpisode:
    """Open an episode. If there is no room, it waits for a bounded time, then answers 503 with Retry-After."""
    asked = body.request(caller.name)
    opening = await while_connected(
        # Nobody but the client that left would know the handle.
        request.receive,
        partial(plane.table.open, asked),
        lambda unread: plane.table.close(unread.handle, caller.name),
    )
    token = plane.access.mint(caller, opening.handle) if body.mint_token else None
    return plane.opened(request, opening, token)


@router.get("/episodes", tags=["episodes"], responses=refusals(InvalidRequest, StoreUnavailable))
async def list_episodes(
    plane: Plane,
    caller: CallingPrincipal,
    label: Annotated[
        list[str] | None, Query(description="NAME=VALUE that an episode has to be labelled with; may be repeated.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=_PAGE)] = 100,
) -> list[EpisodeInfo]:
    """The caller's episodes, the newest first: live ones, and ended ones that are remembered or stored."""
    labels: dict[str, str] = {}
    for text in label or ():
        name, equals, value = text.partition("=")
        if not equals or labels.setdefault(name, value) != value:
            raise InvalidRequest(f"label {text!r} has to be NAME=VALUE, with each NAME once")
    return await plane.recorded.list_episodes(caller.name, labels, limit)


@router.get("/episodes/{episode_id}", tags=["episodes"], responses=refusals(UnknownEpisode, StoreUnavailable))
async def get_episode(episode_id: str, plane: Plane, caller: CallingPrincipal) -> EpisodeInfo:
    """The state of an episode: status, outcome, steps, rewards, timing."""
    return await plane.recorded.info(episode_id, caller.name)


@router.get("/episodes/{episode_id}/legal-calls", tags=["episodes"], responses=_EPISODE)
async def get_legal_calls(episode_id: str, plane: Plane, caller: CallingPrincipal) -> LegalCalls:
    """Which calls make sense now, if the environment says so. For policies and audits, never for a player."""
    return LegalCalls(calls=await plane.table.legal_calls(plane.table.find(episode_id, caller.name)))


@router.post("/episodes/{episode_id}/keepalive", tags=["episodes"], responses=_EPISODE)
async def keep_episode(episode_id: str, plane: Plane, caller: CallingPrincipal) -> EpisodeInfo:
    """Restart the idle timer of an episode, for players that need a long time between calls."""
    return await plane.table.keep_alive(plane.table.find(episode_id, caller.name))


@router.post(
    "/episodes/{episode_id}/reset",
    tags=["episodes"],
    responses=refusals(UnknownEpisode, InvalidRequest, AtCapacity, EpisodeFailed, body=True),
)
async def reset_episode(
    episode_id: str, request: Request, plane: Plane, caller: CallingPrincipal, body: TaskFields | None = None
) -> OpenedEpisode:
    """Start an episode over. It keeps its task and seed unless others are given."""
    found = plane.table.find(episode_id, caller.name)
    opening = await plane.table.reset(found, body.choice if body is not None else Choice())
    return plane.opened(request, opening)


@router.post(
    "/episodes/{episode_id}/fork",
    status_code=201,
    tags=["episodes"],
    responses=refusals(UnknownEpisode, InvalidRequest, AtCapacity, EpisodeFailed, body=True),
)
async def fork_episode(
    episode_id: str, request: Request, plane: Plane, caller: CallingPrincipal, body: ForkFields | None = None
) -> OpenedEpisode:
    """Open a copy of an episode at one of its calls. Both go on apart. The observation is what the player saw last.

    A live episode can be copied, and one that only the trajectory store remembers.
    """
    asked = body or ForkFields()
    opening = await while_connected(
        request.receive,
        partial(plane.table.fork, episode_id, caller.name, asked.step, asked.labels),
        lambda unread: plane.table.close(unread.handle, caller.name),
    )
    token = plane.access.mint(caller, opening.handle) if asked.mint_token else None
    return plane.opened(request, opening, token)


@router.post("/episodes/{episode_id}/finish", tags=["episodes"], responses=refusals(UnknownEpisode, Resuming))
async def finish_episode(episode_id: str, plane: Plane, caller: CallingPrincipal) -> EpisodeInfo:
    """End an episode, because its player has stopped, and return its state once its reward is known.

    An episode that has ended keeps its outcome, however often this is sent.
    """
    return await plane.table.finish(episode_id, caller.name)


@router.delete("/episodes/{episode_id}", tags=["episodes"], responses=_UNKNOWN_EPISODE)
async def close_episode(episode_id: str, plane: Plane, caller: CallingPrincipal) -> EpisodeInfo:
    """Close an episode and return its last state. Closing it again changes nothing."""
    return await plane.table.close(episode_id, caller.name)


@router.get(
    "/episodes/{episode_id}/trajectory",
    tags=["episodes"],
    responses=refusals(UnknownEpisode, EpisodeFailed, StoreUnavailable),
)
async def get_trajectory(episode_id: str, plane: Plane, caller: CallingPrincipal) -> Trajectory:
    """The trajectory of an episode: its first observation and its recorded calls."""
    return await plane.recorded.trajectory(episode_id, caller.name)


@router.get("/healthz", tags=["health"])
async def health() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "ok"}


@router.get("/readyz", tags=["health"], responses={503: _NOT_READY})
async def readiness(request: Request, plane: Plane, response: Response) -> dict[str, Any]:
    """Whether the gateway accepts new episodes of every environment. If not, 503 with the reason.

    The environments are listed only for callers that may use the control plane.
    """
    status, reason = plane.readiness()
    if status != "ready":
        response.status_code = 503
    said: dict[str, Any] = {"status": status, "live": plane.table.live, "capacity": plane.capacity}
    if reason is not None:
        said["reason"] = reason
    if PRINCIPAL_KEY in request.scope:
        said["environments"] = {name: asdict(it) for name, it in plane.table.preparations.items()}
    return said


@router.get(METRICS, tags=["health"], response_class=PlainTextResponse)
async def get_metrics(request: Request, plane: Plane) -> Response:
    """The metrics, for Prometheus. A token with the scope `metrics` is enough."""
    text, media_type = await plane.metrics.expose(request.headers.get("accept", ""))
    return Response(text, media_type=media_type)


@router.api_route(WELCOME, methods=["GET", "HEAD"], include_in_schema=False)
async def get_welcome(request: Request, plane: Plane) -> Response:
    """What is served, and how to go on. A page for browsers."""
    return welcome(
        request.headers.get("accept", ""),
        plane.url(request, ""),
        request.app.version,
        plane.table.environments.values(),
        with_token=plane.access.required,
    )


def _watches(scope: MutableMapping[str, Any]) -> bool:
    return scope["path"] in PROBES or scope["path"] == METRICS


def control_plane(plane: ControlPlane, version: str) -> FastAPI:
    """The FastAPI application of the control plane."""
    app = FastAPI(
        title="envport",
        version=version,
        summary="Control plane: environments, tasks and episodes. The episodes are played over MCP.",
        redoc_url=None,
        # Newer releases of FastAPI make their own spans. One span for each request is enough, and probes and metrics
        # need none. Older releases treat this argument as metadata.
        telemetry={"operation_spans": False, "exclude": _watches},
    )
    app.state.plane = plane
    app.include_router(router)
    add_error_handlers(app)
    generated = app.openapi
    app.openapi = lambda: describe_refusals(generated())
    return app
