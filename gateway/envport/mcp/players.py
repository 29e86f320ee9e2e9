"""The caller of a request and the episode that it is for. Only this differs between the transports."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import anyio
from mcp.server.context import ServerRequestContext
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from envport.access import Principal
from envport.episodes import EpisodeTable, Found, Leaving, Opening, OpenRequest

__all__ = [
    "PLAYER_KEY",
    "FixedEpisode",
    "Player",
    "PlayerOf",
    "SessionEpisodes",
    "ToolRequest",
    "player_of_request",
    "player_with_session",
]

PLAYER_KEY = "envport.player"
"""Where the HTTP surface puts the `Player` into the ASGI scope."""

_SESSION_HEADER = "mcp-session-id"


class Player(NamedTuple):
    """The caller of a request.

    Attributes:
        principal: The principal of the caller.
        episode: The episode, if the address or a header names it.
        session: Id of the session, which can remember an episode between requests: a session of the handshake era,
            or the stdio process. `None` if there are no sessions.
    """

    principal: Principal
    episode: Found | None = None
    session: str | None = None


PlayerOf = Callable[[ServerRequestContext[Any, Any]], Player]


class ToolRequest(NamedTuple):
    """What a server has to know of a request that calls a tool.

    Attributes:
        player: Its caller.
        meta: Its `_meta`.
        receive: The ASGI receive channel of the request, whose body has been read; `None` if it came over stdio.
        report: Sends progress to the caller; `None` if the way that the request took has none.
        leaving: Lets a cancellation reach it that comes in another request.
    """

    player: Player
    meta: Mapping[str, Any]
    receive: Callable[[], Awaitable[Any]] | None = None
    report: Callable[[float, float | None, str | None], Awaitable[None]] | None = None
    leaving: Leaving | None = None


def player_of_request(ctx: ServerRequestContext[Any, Any]) -> Player:
    """The player that the HTTP surface put into the request's scope."""
    request = ctx.request
    assert request is not None
    player: Player = request.scope[PLAYER_KEY]
    if ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
        return player_with_session(player, request.headers.get(_SESSION_HEADER))
    return player


def player_with_session(player: Player, session: str | None) -> Player:
    """The player of a request of the handshake era, whose session may remember an episode."""
    return player if player.episode is not None else Player(player.principal, None, session)


class SessionEpisodes:
    """Remembers which episode each session played last. Forgets the least recently used sessions first.

    Args:
        max_sessions: How many sessions to remember.
    """

    def __init__(self, max_sessions: int = 10_000):
        self._max_sessions = max_sessions
        self._handles: OrderedDict[str, str] = OrderedDict()

    def get(self, session: str | None) -> str | None:
        """The handle of the episode that the session played last."""
        return self._handles.get(session) if session is not None else None

    def remember(self, session: str | None, handle: str) -> None:
        """Note that the session plays this episode."""
        if session is None:
            return
        self._handles[session] = handle
        self._handles.move_to_end(session)
        if len(self._handles) > self._max_sessions:
            self._handles.popitem(last=False)


class FixedEpisode:
    """The one episode of a stdio process. It is opened when it is first needed, not at the handshake.

    Args:
        table: The table of episodes.
        request: The request for the episode.
    """

    def __init__(self, table: EpisodeTable, request: OpenRequest):
        self._table = table
        self._request = request
        self._lock = anyio.Lock()
        self._opening: Opening | None = None
        self._shown = False

    async def get(self) -> Opening:
        """The prompt, first observation and seed of the episode. Opens the episode if it is not open yet."""
        async with self._lock:
            if self._opening is None:
                self._opening = await self._table.open(self._request)
            return self._opening

    @property
    def principal(self) -> str:
        """Name of the principal that owns the episode."""
        return self._request.principal

    def take_opening(self) -> bool:
        """Whether the next result should begin with the first observation. True at the first call only."""
        shown, self._shown = self._shown, True
        return not shown
