"""Who looks at the page, and what they may see and do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from envport.access import ANYONE, Access, Principal
from envport.episodes import EpisodeTable
from envport.errors import PermissionDenied, Unauthenticated
from envport.trajectories.archive import Archive

__all__ = ["VIEWER_KEY", "Credentials", "PageParts", "Viewer"]

VIEWER_KEY = "envport.viewer"
"""The key under which the page's application finds the viewer in the ASGI scope."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a browser authenticates with.

    Attributes:
        authorization: The header `Authorization`, which comes first.
        session: The session from the cookie.
    """

    authorization: str | None = None
    session: str | None = None

    def principal(self, access: Access) -> Principal | None:
        """The principal that may look at the page now; `None` if a login is needed.

        Raises:
            Unauthenticated: The header has a token that is not valid.
            PermissionDenied: The token is of a single episode, or has no scope that the page needs.
        """
        if self.authorization is not None:
            principal = access.authenticate(self.authorization)
        elif not access.required:
            principal = ANYONE
        else:
            principal = access.of_session(self.session) if self.session is not None else None
        if principal is None:
            return None
        if principal.episode is not None:
            raise PermissionDenied("this token plays one episode, and the page is for tokens of more")
        principal.require("read", "play", "control")
        return principal


@dataclass(frozen=True, slots=True)
class PageParts:
    """What the page shows.

    Attributes:
        table: The episodes that run.
        access: The tokens.
        archive: The recorded episodes, if the gateway keeps them.
        version: Version of envport.
    """

    table: EpisodeTable
    access: Access
    archive: Archive | None
    version: str


@dataclass(frozen=True, slots=True)
class Viewer:
    """A browser that looks at the page of a gateway. Its rights are looked up each time, as a token may be withdrawn.

    Attributes:
        parts: What is shown.
        credentials: What the browser authenticates with.
        url: Address of the gateway.
        cookies: The cookies of the request.
    """

    parts: PageParts
    credentials: Credentials
    url: str
    cookies: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, scope: Mapping[str, Any]) -> Viewer:
        """The viewer of a request that passed the gate."""
        return scope[VIEWER_KEY]

    @property
    def principal(self) -> Principal:
        """Who looks.

        Raises:
            Unauthenticated: The session is over, or the token is no longer valid.
            PermissionDenied: The token has lost its scopes.
        """
        principal = self.credentials.principal(self.parts.access)
        if principal is None:
            raise Unauthenticated("your session is over: log in again")
        return principal

    @property
    def may_act(self) -> bool:
        """Whether the viewer may open and play episodes."""
        return not self.principal.scopes.isdisjoint(("play", "control"))

    @property
    def sees_rewards(self) -> bool:
        """Whether the viewer sees what players do not see: rewards, diagnostics and the metadata of tasks."""
        return not self.principal.scopes.isdisjoint(("read", "control"))

    @property
    def owner(self) -> str | None:
        """Whose episodes the viewer sees; `None` for everybody's, as where there are no tokens."""
        principal = self.principal
        return principal.name if self.parts.access.required else None

    def player(self) -> str:
        """Name of the principal that plays.

        Raises:
            PermissionDenied: The viewer may only look.
        """
        principal = self.principal
        principal.require("play", "control")
        return principal.name
