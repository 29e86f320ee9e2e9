"""Where an OpenEnv server is, and what it says of itself over HTTP."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn
from urllib.parse import urlsplit

import httpx2

from envport.errors import ConfigurationError, InvalidOption
from envport_envs.mcp_servers.sources import filled

__all__ = ["HttpLook", "ServerAddress", "parsed"]

_MOST_BYTES = 64 * 2**20
_NOT_THERE = (404, 405, 501)


@dataclass(frozen=True)
class ServerAddress:
    """A server.

    Attributes:
        url: Its URL, without a slash at the end.
        headers: HTTP headers, with placeholders for secrets.
        variables: Names of this process's environment variables that placeholders may name.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    variables: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> ServerAddress:
        """Read a URL. `http`, `https`, `ws` and `wss` are allowed, and none is taken as `http`.

        Raises:
            InvalidOption: It is no URL of a server.
        """
        url = text if re.match(r"[a-z]+://", text, re.IGNORECASE) else f"http://{text}"
        url = re.sub("^ws", "http", url, flags=re.IGNORECASE).rstrip("/").removesuffix("/ws")
        parts = urlsplit(url)
        try:
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            known = False
        if not known or parts.query or parts.fragment or "@" in parts.netloc:
            raise InvalidOption(
                f"openenv:{text} names no server: give the URL of one, such as openenv:http://127.0.0.1:8000, and keys "
                "in the option headers"
            )
        return cls(url)

    @property
    def socket_url(self) -> str:
        """Where sessions are opened."""
        return f"ws{self.url.removeprefix('http')}/ws"

    def filled(self, secrets: Mapping[str, str]) -> ServerAddress:
        """The same with the placeholders filled.

        Raises:
            InvalidOption: A placeholder names nothing.
        """
        given = {name: os.environ[name] for name in self.variables if name in os.environ} | dict(secrets)
        return replace(self, headers=tuple((name, filled(text, given, strict=True)) for name, text in self.headers))


class HttpLook:
    """Requests to a server while it is looked at.

    Args:
        http: The client, with the server's URL and headers.
    """

    def __init__(self, http: httpx2.AsyncClient):
        self._http = http

    async def get(self, path: str) -> Any:
        """The JSON at a path; `None` if the server has nothing there.

        Raises:
            ConfigurationError: The server cannot be reached, or its answer is no JSON.
        """
        return await self._asked("GET", path)

    async def post(self, path: str, data: Mapping[str, Any]) -> Any:
        """The JSON that answers a request; `None` if the server does not know it.

        Raises:
            ConfigurationError: The server cannot be reached, or its answer is no JSON.
        """
        return await self._asked("POST", path, json=dict(data))

    def unexpected(self, path: str, what: str) -> NoReturn:
        """Say that an answer is not what the protocol has.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(f"{self._http.base_url} is no OpenEnv server: its answer to {path} {what}")

    async def _asked(self, method: str, path: str, **body: Any) -> Any:
        try:
            async with self._http.stream(method, path, **body) as response:
                if response.status_code in _NOT_THERE:
                    return None
                if response.status_code != 200:
                    self.unexpected(path, f"has the HTTP status {response.status_code}")
                content = bytearray()
                async for part in response.aiter_bytes():
                    content += part
                    if len(content) > _MOST_BYTES:
                        self.unexpected(path, f"has more than {_MOST_BYTES // 2**20} MiB")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            why = str(error) or type(error).__name__
            raise ConfigurationError(f"the OpenEnv server {self._http.base_url} could not be reached: {why}") from None
        try:
            return parsed(bytes(content))
        except ValueError as error:
            self.unexpected(path, f"is no JSON: {error}")


def parsed(text: str | bytes) -> Any:
    """Read JSON.

    Raises:
        ValueError: It is none. `NaN` and infinities are none.
    """
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number in JSON")
