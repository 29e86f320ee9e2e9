"""The gateway as one ASGI application: access checks, then the MCP endpoints and the control plane."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version

from mcp.server.transport_security import RequestBodyLimitMiddleware
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from envport.access import Access, HostPolicy, Principal
from envport.access import Scope as AccessScope
from envport.channel import CHANNEL_PATH, ChannelSurface
from envport.clock import Clock
from envport.definition import EnvironmentDefinition
from envport.environment import RuntimeKind
from envport.episodes import Episodes, EpisodeTable, Limits, WatchedTable
from envport.errors import ConfigurationError, PermissionDenied, Unauthenticated
from envport.http.problems import problem
from envport.http.routes import METRICS, PRINCIPAL_KEY, PROBES, ControlPlane, control_plane
from envport.http.welcome import WELCOME, refused, wants_page
from envport.mcp.bodies import WholeBody
from envport.mcp.surface import EPISODE_HEADER, Endpoint, McpSurface
from envport.metrics import Metrics
from envport.surfaces import MountedSurface, MountedSurfaces, SurfaceFactory
from envport.telemetry.subject import principal_at_hand
from envport.telemetry.tracing import caller_joined
from envport.trajectories import Archive, TrajectoryStore
from envport.types import MAX_BODY
from envport.web import PageSurface
from envport.web.viewer import PageParts

__all__ = ["Gateway"]

logger = logging.getLogger(__name__)

_BLANKS = (b" ", b"\t")
_OPENED_BY: dict[str, tuple[AccessScope, ...]] = {METRICS: ("metrics", "control")}


class Gateway:
    """ASGI application that serves environments.

    Every request passes the same checks, for all surfaces: its `Host`, then its `Origin`, then its token.

    Args:
        environments: The environments to serve.
        access: The tokens. Without tokens, every client may do everything.
        hosts: The hosts and origins that are answered; those of a loopback binding if not given.
        limits: Limits on episodes.
        clock: The clock.
        trajectories: Where calls are recorded.
        public_url: Address of the gateway as clients see it, if it is behind a proxy.
        runtime: The runtime for all environments. If not given, each runs in the runtime that it declares.
        table: The table of episodes, if they run elsewhere. The table then has its own `limits`, `trajectories` and
            `runtime`.
        archive: Looks up recorded episodes, if they run elsewhere.
        surfaces: Further surfaces by name; see `envport.surfaces`.
        environment_surfaces: Further surfaces that each environment has, by name.
        root_surface: The surface that serves every path that is nobody else's, if there is one.
        changing: Whether `replace` may be called.
        sdk_only: Whether the MCP SDK answers every message. By default, the gateway answers the frequent ones itself.
        page: Whether browsers get the page of `envport.web`. It needs the extra `ui`.

    Raises:
        ConfigurationError: Two environments have the same name, one cannot be served, there is no environment, a
            surface has a name that it cannot have, or an environment has one that the root surface cannot serve.
    """

    def __init__(
        self,
        environments: Iterable[EnvironmentDefinition],
        *,
        access: Access | None = None,
        hosts: HostPolicy | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
        trajectories: TrajectoryStore | None = None,
        public_url: str | None = None,
        runtime: RuntimeKind | None = None,
        table: EpisodeTable | None = None,
        archive: Archive | None = None,
        surfaces: Mapping[str, SurfaceFactory] | None = None,
        environment_surfaces: Mapping[str, SurfaceFactory] | None = None,
        root_surface: SurfaceFactory | None = None,
        changing: bool = False,
        sdk_only: bool = False,
        page: bool = False,
    ):
        self.access = access or Access()
        self._hosts = hosts or HostPolicy.for_binding("127.0.0.1")
        self._metrics = Metrics()
        episodes: Episodes | None = None
        if table is None:
            table = episodes = Episodes(
                _by_name(environments), limits, clock, trajectories, runtime, observer=self._metrics.observer
            )
        self.archive = episodes.trajectories.archive if episodes is not None else archive
        self.table: EpisodeTable = WatchedTable(table, self._metrics.observer, clock)
        self._episodes = episodes
        self._mcp = McpSurface(self.table, changing=changing, sdk_only=sdk_only, clock=clock)
        self._metrics.look_at(self.table, episodes, lambda: self._mcp.sessions)
        self._plane = ControlPlane(self.table, self.access, self._metrics, public_url, self.archive)
        self._control = RequestBodyLimitMiddleware(control_plane(self._plane, version("envport")), MAX_BODY)
        self._surfaces = MountedSurfaces(
            surfaces or {}, environment_surfaces or {}, self.table, root_surface, self.access
        )
        shown = PageParts(self.table, self.access, self.archive, version("envport"))
        self._page = PageSurface(shown, public_url) if page else None
        self._channel = ChannelSurface(self.table, self.access.authenticate)
        self._entry: ASGIApp = self._gate
        if self._hosts.origins:
            # CORS: a browser lets a page read answers only if their headers allow it. It also sends a preflight
            # request before a request with a token.
            self._entry = CORSMiddleware(
                self._gate,
                allow_origins=sorted(self._hosts.origins),
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=["Mcp-Session-Id", "Retry-After", "WWW-Authenticate"],
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an ASGI connection."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._entry(scope, receive, send)
        else:
            # A WebSocket needs no CORS: the gate refuses pages of other origins.
            await self._gate(scope, receive, send)

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Run the background tasks. A server does this through the ASGI lifespan."""
        async with self.table.run(), self._mcp.run(), self._channel.run(), AsyncExitStack() as pages:
            if self._page is not None:
                await pages.enter_async_context(self._page.run())
            self._plane.ready = True
            try:
                with self._metrics.run():
                    yield
            finally:
                self._plane.ready = False

    async def replace(self, spec: EnvironmentDefinition) -> None:
        """Serve an environment in place of the one of the same name, while the gateway runs.

        New episodes are of the new one. Those that are live are played on with the one before.

        Raises:
            ConfigurationError: It cannot be served or run, or the episodes run elsewhere. The one before stays.
            UnknownEnvironment: None of that name is served.
        """
        if self._episodes is None:
            raise ConfigurationError("environments that run on a cluster cannot be replaced: restart the gateway")
        spec.check()
        await self._episodes.prepare_to_replace(spec)
        show = await self._mcp.start(spec)
        self._episodes.replace(spec)
        show()

    async def _gate(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request or a WebSocket handshake. An answer before a WebSocket is accepted refuses it."""
        headers = _gate_headers(scope)
        if headers is None:
            await PlainTextResponse("A header that names who asks, or for what, is there twice", 400)(
                scope, receive, send
            )
            return
        if not self._hosts.allows_host(headers.get("host")):
            await PlainTextResponse("This gateway does not answer for that Host", 421)(scope, receive, send)
            return
        if not self._hosts.allows_origin(headers.get("origin")):
            await PlainTextResponse("This gateway does not answer pages of that Origin", 403)(scope, receive, send)
            return
        surface, endpoint = self._meant(scope["path"], headers)
        # A surface that has every path, for a session at the root, has these too.
        page = self._page if surface is None and endpoint is None else None
        if page is not None and page.serves(scope, wants_page=_wants_page(scope)):
            await page(scope, receive, send)
            return
        on_channel = surface is None and scope["type"] == "websocket" and scope["path"] == CHANNEL_PATH
        try:
            principal = self._admit(scope["path"], surface, endpoint, _token_of(headers, surface), channel=on_channel)
        except (Unauthenticated, PermissionDenied) as error:
            at_root = scope["type"] == "http" and scope["path"] == WELCOME
            answer = refused(error, Headers(scope=scope).get("accept", "")) if at_root else problem(error)
            await answer(scope, receive, send)
            return
        if principal is None:
            # A probe.
            await self._control(scope, receive, send)
            return
        token = principal_at_hand.set(principal.name)
        try:
            with caller_joined(scope):
                if surface is not None:
                    await surface(principal, scope, receive, send)
                elif on_channel:
                    await self._channel.handle(principal, headers.get("authorization"), scope, receive, send)
                elif scope["type"] == "websocket":
                    await PlainTextResponse("There is no WebSocket endpoint at this path", 404)(scope, receive, send)
                else:
                    await self._serve(endpoint, principal, scope, receive, send)
        finally:
            principal_at_hand.reset(token)

    def _meant(self, path: str, headers: Mapping[str, str]) -> tuple[MountedSurface | None, Endpoint | None]:
        """The surface or the MCP endpoint that a request is for."""
        episode = headers.get("envport-episode")
        surface = self._surfaces.at(path, headers.get("cookie"))
        if surface is None:
            return None, Endpoint.of(path, episode)
        if episode is not None and surface.has_mcp_at(path):
            return None, Endpoint(episode, surface.environment)
        return surface, None

    async def _serve(
        self, endpoint: Endpoint | None, principal: Principal, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if scope["method"] == "POST":
            whole = await WholeBody.read(receive, MAX_BODY)
            if whole is None:
                return
            receive = whole
        if endpoint is not None:
            await self._mcp.handle(endpoint, principal, scope, receive, send)
            return
        scope[PRINCIPAL_KEY] = principal
        await self._control(scope, receive, send)

    def _admit(
        self,
        path: str,
        surface: MountedSurface | None,
        endpoint: Endpoint | None,
        authorization: str | None,
        *,
        channel: bool,
    ) -> Principal | None:
        principal = self.access.authenticate(authorization)
        if principal is None:
            if endpoint is None and path in PROBES:
                return None
            raise Unauthenticated("this gateway needs a token: Authorization: Bearer TOKEN")
        if surface is not None:
            surface.require(principal)
        elif channel:
            self._channel.require(principal)
        elif endpoint is None:
            principal.require(*_OPENED_BY.get(path, ("control",)))
        else:
            principal.require_episode(endpoint.episode)
        return principal

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        started = False
        await receive()
        try:
            async with self.run():
                started = True
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except BaseException:
            logger.exception("the gateway broke")
            await send({"type": f"lifespan.{'shutdown' if started else 'startup'}.failed", "message": "see the log"})
            raise
        await send({"type": "lifespan.shutdown.complete"})


def _by_name(environments: Iterable[EnvironmentDefinition]) -> dict[str, EnvironmentDefinition]:
    served: dict[str, EnvironmentDefinition] = {}
    for spec in environments:
        if spec.name in served:
            raise ConfigurationError(f"two environments are named {spec.name!r}; serve one as NAME=REFERENCE")
        spec.check()
        served[spec.name] = spec
    if not served:
        raise ConfigurationError("there is no environment to serve")
    return served


def _wants_page(scope: Scope) -> bool:
    return scope["path"] == WELCOME and wants_page(Headers(scope=scope).get("accept", ""))


def _token_of(headers: Mapping[str, str], surface: MountedSurface | None) -> str | None:
    """What a request authenticates with, in the form of an `Authorization` header."""
    authorization, key = headers.get("authorization"), headers.get("x-api-key")
    return f"Bearer {key}" if surface is not None and authorization is None and key else authorization


_GATE_HEADERS = {
    name: name.decode("ascii")
    for name in (b"host", b"origin", b"authorization", b"x-api-key", b"cookie", EPISODE_HEADER.encode("ascii"))
}


def _gate_headers(scope: Scope) -> dict[str, str] | None:
    """The headers that the access checks read; `None` if one is there twice.

    Strips white space around all values, because one HTTP parser leaves it in.
    """
    raw: list[tuple[bytes, bytes]] = scope["headers"]
    found: dict[str, str] = {}
    blanks = False
    for name, value in raw:
        blanks = blanks or value[:1] in _BLANKS or value[-1:] in _BLANKS
        if (known := _GATE_HEADERS.get(name)) is not None:
            if known in found:
                return None
            found[known] = value.decode("latin-1").strip(" \t")
    if blanks:
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in raw]
    return found
