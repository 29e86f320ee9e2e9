"""Addresses at a gateway: of an environment, of an episode, and of what is played over MCP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, unquote, urlsplit

from envport.errors import ConfigurationError
from envport.references import names_server

__all__ = [
    "URL_VARIABLE",
    "EnvironmentAddress",
    "environment_path",
    "episode_path",
    "gateway_address",
    "mcp_address",
]

URL_VARIABLE = "ENVPORT_URL"
"""The variable that holds the address of the user's gateway."""


def environment_path(name: str) -> str:
    """The path of an environment, relative to the gateway's address."""
    return f"/environments/{quote(name, safe='')}"


def episode_path(episode_id: str) -> str:
    """The path of an episode, relative to the gateway's address."""
    return f"/episodes/{quote(episode_id, safe='')}"


def mcp_address(gateway: str, path: str) -> str:
    """Where an environment or an episode is played over MCP.

    Args:
        gateway: Address of the gateway.
        path: Path of the environment or of the episode.
    """
    return f"{gateway}{path}/mcp"


@dataclass(frozen=True)
class EnvironmentAddress:
    """An environment at a gateway.

    Attributes:
        gateway: Address of the gateway, without a slash at the end.
        name: Name of the environment.
    """

    gateway: str
    name: str

    @property
    def mcp_url(self) -> str:
        """Where it is played over MCP."""
        return mcp_address(self.gateway, environment_path(self.name))

    @property
    def url(self) -> str:
        """The whole address."""
        return f"{self.gateway}{environment_path(self.name)}"

    @classmethod
    def parse(cls, url: str) -> Self | None:
        """Read `http://HOST:PORT/environments/NAME`, also with `/mcp` at the end. `None` if it is anything else."""
        try:
            parts = urlsplit(url)
        except ValueError:
            return None
        base, separator, name = parts.path.rstrip("/").removesuffix("/mcp").rpartition("/environments/")
        if parts.scheme not in ("http", "https") or not parts.netloc or not separator or not name or "/" in name:
            return None
        return cls(f"{parts.scheme}://{parts.netloc}{base}", unquote(name))


def gateway_address(url: str) -> str:
    """The address of a gateway, without a slash at the end.

    Args:
        url: The address as somebody gave it.

    Raises:
        ConfigurationError: It is the address of an environment, or none of HTTP.
    """
    if (environment := EnvironmentAddress.parse(url)) is not None:
        raise ConfigurationError(
            f"{url} is the address of an environment, and that of its gateway is needed here: {environment.gateway}"
        )
    if not names_server(url):
        raise ConfigurationError(f"{url!r} is no address of a gateway, such as http://127.0.0.1:8000")
    return url.rstrip("/")
