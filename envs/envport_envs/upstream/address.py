"""Where a foreign environment server is, and with which keys."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from envport.errors import InvalidOption
from envport.references import names_server
from envport_envs.mcp_servers.sources import filled

__all__ = ["ServerAddress", "environment_name"]


@dataclass(frozen=True)
class ServerAddress:
    """A server.

    Attributes:
        url: Its URL, without a slash at the end.
        headers: HTTP headers, with placeholders for secrets.
        variables: Names of this process's environment variables that placeholders may name.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    variables: tuple[str, ...] = ()

    @classmethod
    def parse(cls, scheme: str, text: str) -> ServerAddress:
        """Read a URL. `http`, `https`, `ws` and `wss` are allowed, and none is taken as `http`.

        Args:
            scheme: The scheme of the reference.
            text: The URL.

        Raises:
            InvalidOption: It is no URL of a server.
        """
        url = text if re.match(r"[a-z]+://", text, re.IGNORECASE) else f"http://{text}"
        url = re.sub("^ws", "http", url, flags=re.IGNORECASE).rstrip("/").removesuffix("/ws")
        parts = urlsplit(url) if names_server(url) else None
        if parts is None or parts.query or parts.fragment or "@" in parts.netloc:
            raise InvalidOption(
                f"{scheme}:{text} names no server: give the URL of one, such as {scheme}:http://127.0.0.1:8000, and "
                "keys in the option headers"
            )
        return cls(url)

    def values(self, secrets: Mapping[str, str]) -> dict[str, str]:
        """What placeholders may stand for, by name: secrets, and environment variables."""
        return {name: os.environ[name] for name in self.variables if name in os.environ} | dict(secrets)

    def filled(self, secrets: Mapping[str, str]) -> ServerAddress:
        """The same with the placeholders filled.

        Raises:
            InvalidOption: A placeholder names nothing.
        """
        given = self.values(secrets)
        return replace(self, headers=tuple((name, filled(text, given, strict=True)) for name, text in self.headers))


def environment_name(text: str, fallback: str) -> str:
    """A name for an environment, of what a server calls itself.

    Args:
        text: Any text.
        fallback: The name if no letter or digit is in it.
    """
    return re.sub("[^A-Za-z0-9._-]+", "-", text).strip("-._")[:64] or fallback
