"""The seam for surfaces of other packages: routes, WebSocket ones too, that play episodes through the table.

A package registers a surface under the entry point group `envport.surfaces`. Its routes are below `/NAME`, where `NAME`
is the name of the entry point. Under the group `envport.environment_surfaces`, each environment has the routes, below
`/environments/ENVIRONMENT/NAME`. One of the group `envport.root_surfaces` may be chosen to serve every path that is
neither the gateway's own nor another surface's, for protocols whose clients know no path.

Every request passes the gateway's gate before it reaches the surface: `Host`, `Origin` and token. A surface may show
rewards and reset episodes, so it is for trainers: a token needs both scopes, `control` and `play`, and a token of one
episode is refused. It may come as `X-API-Key` too, because clients of other protocols send it so.

Below a surface of environments, `/mcp` with the header `Envport-Episode` is the MCP address of that episode, for
protocols whose clients look for MCP below the address that they were given. A token that may play the episode is
enough.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import Literal, Protocol, cast

from mcp.server.transport_security import RequestBodyLimitMiddleware
from starlette.requests import Request, cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from envport.access import Access, Principal
from envport.episodes import EpisodeTable
from envport.errors import ConfigurationError, EnvportError, PermissionDenied
from envport.http.problems import problem
from envport.http.routes import PRINCIPAL_KEY
from envport.types import MAX_BODY

__all__ = [
    "MountedSurface",
    "MountedSurfaces",
    "SurfaceApp",
    "SurfaceFactory",
    "SurfaceGroup",
    "error_answer",
    "installed_surfaces",
    "surface_environment",
    "surface_episode_token",
    "surface_principal",
]

logger = logging.getLogger(__name__)

SurfaceGroup = Literal["envport.surfaces", "envport.environment_surfaces", "envport.root_surfaces"]
"""The entry point groups of surfaces."""

_ENVIRONMENT_KEY = "envport.environment"
_MINT_KEY = "envport.mint"
_MCP = "/mcp"
_NAME = re.compile(r"[a-z][a-z0-9_-]*")
# The first part of the gateway's own paths.
_TAKEN = frozenset(
    {"environments", "episodes", "mcp", "healthz", "readyz", "metrics", "docs", "openapi", "rollouts"}
    | {"ui", "_nicegui", "_nicegui_ws"}
)
_DESCRIPTION = "openapi.json"
# What follows the name of an environment in the gateway's own paths.
_TAKEN_OF_ENVIRONMENTS = frozenset({"mcp", "tasks"})


_Mint = Callable[[Principal, str], str]


@dataclass(frozen=True, slots=True)
class SurfaceApp:
    """The application of a surface, with settings that an ASGI application does not have.

    Attributes:
        app: The application.
        max_body: The most bytes of the body of a request.
        session_cookie: Name of the cookie of its sessions. At the root, a request that bears it is the surface's,
            whatever its path: clients may let a model choose the path, which must not reach the gateway's own.
    """

    app: ASGIApp
    max_body: int = MAX_BODY
    session_cookie: str | None = None


class SurfaceFactory(Protocol):
    """What the entry point of a surface names."""

    def __call__(self, table: EpisodeTable, /) -> ASGIApp | SurfaceApp:
        """Make the ASGI application of the surface, such as a Starlette or FastAPI application.

        It gets HTTP and WebSocket scopes, with `root_path` set as for a mounted application. It gets no lifespan.
        With `exception_handlers={EnvportError: error_answer}`, it answers errors as the control plane does.

        Args:
            table: The episodes. Open them for the principal of the request (`surface_principal`), which then owns
                them. Limits and draining hold as everywhere: `open` raises `AtCapacity` and `Draining`.
        """
        ...


def surface_principal(scope: Scope) -> Principal:
    """The principal of a request that reached a surface."""
    return scope[PRINCIPAL_KEY]


def surface_environment(scope: Scope) -> str:
    """The name of the environment in the path of a request, for a surface of environments. It may not be served."""
    return scope[_ENVIRONMENT_KEY]


def surface_episode_token(scope: Scope, handle: str) -> str | None:
    """A bearer token that plays one episode of the request's principal and opens nothing else.

    Args:
        scope: The ASGI scope of a request that reached a surface.
        handle: The episode.

    Returns:
        The token; `None` if the gateway needs none.
    """
    mint: _Mint | None = scope[_MINT_KEY]
    return mint(surface_principal(scope), handle) if mint is not None else None


async def error_answer(request: Request, error: Exception) -> Response:
    """Answer an `EnvportError` over HTTP: an exception handler for Starlette and FastAPI."""
    return problem(cast("EnvportError", error))


def installed_surfaces(group: SurfaceGroup) -> dict[str, SurfaceFactory]:
    """The surfaces that installed packages register, by name. One that cannot be loaded is left out, and logged.

    Args:
        group: The entry point group.

    Raises:
        ConfigurationError: Two packages register the same name.
    """
    found: dict[str, SurfaceFactory] = {}
    values: dict[str, str] = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        if values.setdefault(point.name, point.value) != point.value:
            raise ConfigurationError(
                f"two packages register the surface {point.name!r}: {values[point.name]} and {point.value}; remove "
                "one of them"
            )
        try:
            found[point.name] = point.load()
        except (Exception, SystemExit) as error:
            # For example, its extra is not installed. The gateway serves the rest.
            logger.warning("the surface %s is not served: %s", point.name, error)
    return found


@dataclass(frozen=True, slots=True)
class MountedSurface:
    """A surface that serves a path.

    Attributes:
        app: The application.
        root: The part of the path that its routes are below.
        environment: Name of the environment in the path, if it is a surface of environments.
        mint: Makes tokens of single episodes, if the gateway needs tokens.
    """

    app: SurfaceApp
    root: str
    environment: str | None = None
    mint: _Mint | None = None

    async def __call__(self, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request or a WebSocket connection of a principal."""
        inner = {
            **scope,
            "root_path": scope.get("root_path", "") + self.root,
            PRINCIPAL_KEY: principal,
            _MINT_KEY: self.mint,
        }
        if self.environment is not None:
            inner[_ENVIRONMENT_KEY] = self.environment
        await self.app.app(inner, receive, send)

    def has_mcp_at(self, path: str) -> bool:
        """Whether a path is where clients of the surface look for the MCP address of an episode."""
        return self.environment is not None and path.removeprefix(self.root).rstrip("/") == _MCP

    def require(self, principal: Principal) -> None:
        """Check that a principal may use surfaces.

        Raises:
            PermissionDenied: It lacks a scope, or its token is for one episode.
        """
        if principal.episode is not None:
            raise PermissionDenied("this token plays one episode, and this is not its address")
        principal.require("control")
        principal.require("play")


class MountedSurfaces:
    """The surfaces of a gateway.

    Args:
        factories: Makes each surface, by name.
        of_environments: Makes each surface of environments, by name.
        table: The episodes that they play.
        root: Makes the surface that serves what nothing else does.
        access: The tokens of the gateway.

    Raises:
        ConfigurationError: A name is malformed, or is one of the gateway's own paths. With `root`, the same holds for
            the names of environments, because clients would find them at the root.
    """

    def __init__(
        self,
        factories: Mapping[str, SurfaceFactory],
        of_environments: Mapping[str, SurfaceFactory],
        table: EpisodeTable,
        root: SurfaceFactory | None = None,
        access: Access | None = None,
    ):
        self._mint: _Mint | None = access.mint if access is not None and access.required else None
        self._apps = _made(factories, _TAKEN, table)
        self._of_environments = _made(of_environments, _TAKEN_OF_ENVIRONMENTS, table)
        self._root = _limited(root(table)) if root is not None else None
        self._not_root_s = frozenset({_DESCRIPTION, *_TAKEN, *self._apps})
        if root is not None and (hidden := [name for name in table.environments if name in self._not_root_s]):
            raise ConfigurationError(
                f"environment {hidden[0]!r} cannot be served at the root, where /{hidden[0]} is taken: serve it under "
                f"another name, as NAME={hidden[0]}"
            )

    def at(self, path: str, cookies: str | None = None) -> MountedSurface | None:
        """The surface that serves a path.

        Args:
            path: The path.
            cookies: The header `Cookie`. The cookie of a session at the root makes every path the root's, except that
                of the same protocol's surface of an environment.
        """
        found = self._below(path)
        cookie = self._root.session_cookie if self._root is not None else None
        if self._root is None or cookie is None or cookies is None or cookie not in cookie_parser(cookies):
            return found
        same = found is not None and found.app.session_cookie == cookie
        return found if same else MountedSurface(self._root, "", mint=self._mint)

    def _below(self, path: str) -> MountedSurface | None:
        first, _, rest = path[1:].partition("/")
        if first == "environments":
            environment, _, rest = rest.partition("/")
            name = rest.partition("/")[0]
            app = self._of_environments.get(name)
            if app is None:
                return None
            return MountedSurface(app, f"/environments/{environment}/{name}", environment, self._mint)
        if (app := self._apps.get(first)) is not None:
            return MountedSurface(app, f"/{first}", mint=self._mint)
        # The page at `/` is the gateway's.
        if self._root is None or path == "/" or first in self._not_root_s:
            return None
        return MountedSurface(self._root, "", mint=self._mint)


def _limited(made: ASGIApp | SurfaceApp) -> SurfaceApp:
    surface = made if isinstance(made, SurfaceApp) else SurfaceApp(made)
    return replace(surface, app=RequestBodyLimitMiddleware(surface.app, surface.max_body))


def _made(factories: Mapping[str, SurfaceFactory], taken: frozenset[str], table: EpisodeTable) -> dict[str, SurfaceApp]:
    for name in factories:
        if not _NAME.fullmatch(name) or name in taken:
            raise ConfigurationError(
                f"{name!r} cannot name a surface: use lower-case letters, digits, '_' and '-', and none of "
                f"{', '.join(sorted(taken))}"
            )
    return {name: _limited(make(table)) for name, make in factories.items()}
