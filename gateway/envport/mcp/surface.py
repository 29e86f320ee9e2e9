"""The MCP endpoints over HTTP: finds the episode that an address or a header names, and its MCP server.

The SDK implements the protocol. This module decides which of the SDK's servers answers, before FastAPI is reached.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from envport.access import Principal
from envport.clock import Clock, SystemClock
from envport.definition import EnvironmentDefinition
from envport.episodes import EpisodeTable, Found
from envport.errors import UnknownEpisode
from envport.mcp.bodies import WholeBody
from envport.mcp.direct import DirectAnswers
from envport.mcp.exact import SameBytes
from envport.mcp.plain import PlainHeaders, PlainMessage, cancelled_request
from envport.mcp.players import PLAYER_KEY, Player, player_of_request
from envport.mcp.servers import EnvironmentServer, EpisodeServer, GoneServer, SharedServer
from envport.mcp.sessions import Sessions, refusal
from envport.telemetry.tracing import TRACED_KEY

__all__ = ["EPISODE_HEADER", "Endpoint", "McpSurface"]

EPISODE_HEADER = "envport-episode"
"""Request header that names the episode, for clients that cannot change their URL."""

_ENDPOINT = re.compile(r"/(?:episodes/(?P<episode>[^/]+)/|environments/(?P<environment>[^/]+)/)?mcp/?")
_NO_TOOLS: frozenset[str] = frozenset()


class Endpoint(NamedTuple):
    """The episode or environment that the address of an MCP request names.

    Attributes:
        episode: A handle, from the path or the header.
        environment: Name of an environment; `None` at `/mcp` and in an episode's address.
        conflicting: Whether the path and the header name different episodes.
    """

    episode: str | None
    environment: str | None
    conflicting: bool = False

    @classmethod
    def of(cls, path: str, named: str | None) -> Endpoint | None:
        """The endpoint that a request is for; `None` if it is not an MCP endpoint.

        Args:
            path: The path of the request.
            named: The value of the header `Envport-Episode`.
        """
        match = _ENDPOINT.fullmatch(path)
        if match is None:
            return None
        in_path = match["episode"]
        return cls(in_path or named, match["environment"], in_path is not None and named not in (None, in_path))


class _Served:
    """A server with the SDK's transports: plain JSON answers, and streams for tools that report progress.

    Args:
        server: The server.
        streaming: The tools that report progress; `None` for all.
        stateless: Whether there are no sessions.

    Attributes:
        direct: Answers plain messages without the SDK.
        stateless: Whether there are no sessions.
    """

    def __init__(
        self, server: EnvironmentServer, streaming: frozenset[str] | None = _NO_TOOLS, *, stateless: bool = False
    ):
        self.direct = DirectAnswers(server, streaming)
        self.stateless = stateless
        self._streaming = streaming
        self._same_bytes = SameBytes(self._by_the_sdk)
        # `Sessions` limits how many there are, and ends those that are not used.
        manager = partial(StreamableHTTPSessionManager, server.server, session_idle_timeout=None, max_sessions=None)
        self._plain = manager(json_response=True, stateless=stateless)
        # A manager finds only its own sessions, so one manager has to handle all sessions of a server.
        self._stream = self._plain if streaming == _NO_TOOLS else manager(json_response=False, stateless=stateless)

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            for manager in {id(manager): manager for manager in (self._plain, self._stream)}.values():
                await stack.enter_async_context(manager.run())
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._same_bytes(scope, receive, send)

    async def _by_the_sdk(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager(scope).asgi_app(scope, receive, send)

    def _manager(self, scope: Scope) -> StreamableHTTPSessionManager:
        if self._stream is self._plain:
            return self._plain
        headers = Headers(scope=scope)
        modern = headers.get("mcp-protocol-version") not in (None, *HANDSHAKE_PROTOCOL_VERSIONS)
        silent = self._streaming is not None and headers.get("mcp-name") not in self._streaming
        return self._plain if modern and silent else self._stream


@dataclass(frozen=True, slots=True)
class _Playing:
    """The servers of an environment's episodes.

    Attributes:
        spec: The environment. It is kept here, because its `id()` is the key of this object.
        kept: The one with sessions.
        once: The one without.
    """

    spec: EnvironmentDefinition
    kept: _Served
    once: _Served


class McpSurface:
    """ASGI application of the MCP endpoints.

    Args:
        table: The table of episodes.
        changing: Whether environments may be replaced, so that clients are not to keep the listings of their addresses.
        sdk_only: Whether the SDK answers every message, and none is answered directly.
        clock: The clock of the sessions; the system's if not given.
    """

    def __init__(
        self, table: EpisodeTable, *, changing: bool = False, sdk_only: bool = False, clock: Clock | None = None
    ):
        self._table = table
        self._sdk_only = sdk_only
        self._changing = changing
        # By identity, because episodes of an environment that was replaced are played on.
        self._playing: dict[int, _Playing] = {}
        self._shared: dict[str, _Served] = {}
        self._replaced: dict[str, list[_Served]] = {}
        self._served: list[_Served] = []
        self._tasks: TaskGroup | None = None
        limits = table.limits
        self._sessions = Sessions(
            limits.max_sessions, limits.max_sessions_per_principal, limits.idle_seconds, clock or SystemClock()
        )
        for spec in table.environments.values():
            self._shared[spec.name] = self._add(spec)
        # Stateless, so that a session that began while the episode was live gets an answer too.
        self._gone = self._serve(GoneServer(player_of_request), stateless=True)

    def _add(self, spec: EnvironmentDefinition) -> _Served:
        """Add the servers of the environment's episodes, and return the one of its address."""
        streaming = spec.progress_tools
        playing = EpisodeServer(spec, self._table, player_of_request)
        shared = SharedServer(spec, self._table, player_of_request, lasting=not self._changing)
        self._playing[id(spec)] = _Playing(
            spec,
            self._serve(playing, streaming),
            # A client with a token for one episode needs no session, and must not use up the sessions of others.
            self._serve(playing, streaming, stateless=True),
        )
        return self._serve(shared, streaming)

    async def start(self, spec: EnvironmentDefinition) -> Callable[[], None]:
        """Start the servers of an environment that takes the place of the one of the same name.

        Sessions that are open at its address stay with the one before.

        Returns:
            A function. Once it is called, the new server answers at the environment's address.
        """
        first = len(self._served)
        added = self._add(spec)
        assert self._tasks is not None
        for served in self._served[first:]:
            await self._tasks.start(_run_for_ever, served)

        def show() -> None:
            self._replaced.setdefault(spec.name, []).append(self._shared[spec.name])
            self._shared[spec.name] = added

        return show

    def _serve(
        self, server: EnvironmentServer, streaming: frozenset[str] | None = _NO_TOOLS, *, stateless: bool = False
    ) -> _Served:
        served = _Served(server, streaming, stateless=stateless)
        self._served.append(served)
        return served

    @property
    def sessions(self) -> int:
        """How many sessions of the handshake era are open."""
        return self._sessions.open

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Run the servers."""
        async with anyio.create_task_group() as tasks:
            async with AsyncExitStack() as stack:
                for served in self._served:
                    await stack.enter_async_context(served.run())
                self._tasks = tasks
                tasks.start_soon(self._sessions.end_unused)
                yield
            tasks.cancel_scope.cancel()

    async def handle(
        self, endpoint: Endpoint, principal: Principal, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a request for an MCP endpoint.

        Args:
            endpoint: The endpoint of the request.
            principal: The principal of the request. Its permission has been checked already.
            scope: The ASGI scope.
            receive: The ASGI receive channel.
            send: The ASGI send channel.
        """
        if scope["method"] not in ("POST", "DELETE"):
            # The server sends only answers, so a GET stream would stay empty. It would also keep its session alive.
            await Response(status_code=405, headers={"Allow": "POST, DELETE"})(scope, receive, send)
            return
        if endpoint.conflicting:
            await refusal(400, "The address and the header Envport-Episode name different episodes")(
                scope, receive, send
            )
            return
        if endpoint.episode is not None:
            found = self._find(endpoint, principal)
            player = Player(principal, found)
            if found is None:
                served = self._gone
            else:
                playing = self._playing[id(found.spec)]
                # With replicas, the next request may reach another replica, which does not know the session.
                alone = principal.episode is not None or self._table.replicated
                served = playing.once if alone else playing.kept
        else:
            name = endpoint.environment or self._only_environment()
            if name not in self._shared:
                await refusal(404, self._no_environment(endpoint.environment))(scope, receive, send)
                return
            player = Player(principal)
            served = self._at(name, principal, scope)
        if await self._answered_directly(served, player, scope, receive, send):
            return
        scope[PLAYER_KEY] = player
        # The SDK binds a session to the user who opened it.
        scope["user"] = _user(principal)
        if served.stateless:
            await served(scope, receive, send)
        else:
            await self._sessions.serve(principal.name, served, scope, receive, send)

    async def _answered_directly(
        self, served: _Served, player: Player, scope: Scope, receive: Receive, send: Send
    ) -> bool:
        # The SDK makes spans of its own.
        if self._sdk_only or TRACED_KEY in scope or not isinstance(receive, WholeBody) or receive.body is None:
            return False
        headers = PlainHeaders.of(scope["headers"])
        if headers is None:
            return False
        message = PlainMessage.of(headers, receive.body)
        of_a_session = not headers.modern and not served.stateless
        if message is not None and not of_a_session:
            return await served.direct.answer(headers, message, player, receive, send)
        session, principal = headers.session, player.principal.name
        if session is None or not of_a_session:
            return False
        if message is None:
            if (number := cancelled_request(receive.body)) is not None:
                self._sessions.cancel(principal, session, number)
            return False
        with self._sessions.using(principal, session, served, message.id) as leaving:
            return leaving is not None and await served.direct.answer(headers, message, player, receive, send, leaving)

    def _at(self, name: str, principal: Principal, scope: Scope) -> _Served:
        """The server of an environment's address, which for a session is the one that opened it."""
        if (replaced := self._replaced.get(name)) is not None:
            opened_at = self._sessions.at_which(principal.name, Headers(scope=scope).get("mcp-session-id"))
            for server in replaced:
                if server is opened_at:
                    return server
        return self._shared[name]

    def _find(self, endpoint: Endpoint, principal: Principal) -> Found | None:
        assert endpoint.episode is not None
        try:
            found = self._table.find(endpoint.episode, principal.name)
        except UnknownEpisode:
            return None
        return found if endpoint.environment in (None, found.spec.name) else None

    def _only_environment(self) -> str | None:
        return next(iter(self._shared)) if len(self._shared) == 1 else None

    def _no_environment(self, name: str | None) -> str:
        served: dict[str, EnvironmentDefinition] = dict(self._table.environments)
        known = ", ".join(f"/environments/{name}/mcp" for name in served)
        if name is None:
            return f"Several environments are served, and no header Envport-Episode is given; addresses: {known}"
        return f"There is no environment {name!r} here; addresses: {known}"


async def _run_for_ever(served: _Served, *, task_status: TaskStatus[None]) -> None:
    async with served.run():
        task_status.started()
        await anyio.sleep_forever()


@lru_cache(maxsize=1024)
def _user(principal: Principal) -> AuthenticatedUser:
    return AuthenticatedUser(AccessToken(token="", client_id=principal.name, scopes=[], subject=principal.episode))
