"""Handles that contain where their episode runs, so that no replica of a gateway has to remember it."""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256

from envport.entropy import random_token
from envport.errors import UnknownEpisode

__all__ = ["Handles", "Route"]

_HANDLE = re.compile(
    r"(?P<body>ep_(?P<host>[0-9a-z]+)\.(?P<life>[0-9a-f]+)\.(?P<environment>[0-9a-f]+)\.(?P<at>[0-9a-f]+)\.[\w-]{32})"
    r"\.(?P<signature>[\w-]{22})"
)


@dataclass(frozen=True, slots=True)
class Route:
    """The contents of a handle.

    Attributes:
        host: The host that runs the episode.
        life: The life of the host in which the episode began. A restart begins a new life, without the old episodes.
        environment: Position of the environment in the cluster's settings.
        created_at: Unix time in seconds.
    """

    host: str
    life: str
    environment: int
    created_at: int


class Handles:
    """Makes and reads handles.

    A handle is signed together with its principal. So every replica can reject a forged handle, or that of another
    principal, without asking the host, even if the host is gone.

    Args:
        secret: The key, which all hosts and replicas of a cluster share.
    """

    def __init__(self, secret: str):
        self._secret = secret.encode("utf-8", "surrogateescape")

    def make(self, route: Route, principal: str) -> str:
        """A new handle."""
        random = random_token(24)
        body = f"ep_{route.host}.{route.life}.{route.environment:x}.{route.created_at:x}.{random}"
        return f"{body}.{self._sign(body, principal)}"

    def read(self, handle: str, principal: str) -> Route:
        """Read where the episode of a handle runs.

        Raises:
            UnknownEpisode: The handle was not made with this secret for this principal.
        """
        match = _HANDLE.fullmatch(handle)
        if match is None or not hmac.compare_digest(match["signature"], self._sign(match["body"], principal)):
            raise UnknownEpisode
        return Route(match["host"], match["life"], int(match["environment"], 16), int(match["at"], 16))

    def _sign(self, body: str, principal: str) -> str:
        digest = hmac.digest(self._secret, f"{body} {principal}".encode("utf-8", "surrogatepass"), sha256)
        return urlsafe_b64encode(digest[:16]).rstrip(b"=").decode("ascii")
