"""Requests to a foreign environment server, and what its answers come to."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, NoReturn, cast

import httpx2

from envport import UpstreamLost
from envport.backoff import Backoff
from envport_envs.upstream.faults import BadStatus, ServerFull

__all__ = ["MOST_BYTES", "UpstreamHttp", "http_client", "parsed"]

MOST_BYTES = 64 * 2**20
"""The most bytes of an answer."""

_NOT_THERE = (404, 405, 501)
_FULL = (429, 503)
_MOVED = (307, 308)
_MOST_MOVES = 3
_MOST_DETAIL = 500
_SHORTEST_HIDDEN = 6
# A container that a server starts for a session takes minutes.
_STARTING_SECONDS = 900.0
_LONGEST_PAUSE = 10.0
_CONNECT_SECONDS = 30.0


class UpstreamHttp:
    """Requests to a server.

    Args:
        http: The client, with the server's URL.
        what: What the server is, such as `OpenEnv server`.
        headers: HTTP headers of each request.
        hidden: Secrets that no message may contain.
    """

    def __init__(
        self,
        http: httpx2.AsyncClient,
        what: str,
        headers: Mapping[str, str] | None = None,
        hidden: Sequence[str] = (),
    ):
        self.http = http
        self.headers = dict(headers or {})
        self._what = what
        self._hidden = [secret for secret in hidden if len(secret) >= _SHORTEST_HIDDEN]

    async def get(self, path: str) -> Any:
        """The JSON at a path; `None` if the server has nothing there.

        Raises:
            ServerFull: The server has no room now.
            UpstreamLost: It cannot be reached, or its answer is no JSON. `BadStatus` if the status is no success.
        """
        return await self._json("GET", path)

    async def post(self, path: str, data: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Any:
        """The JSON that answers a request; `None` if the server does not know it.

        Args:
            path: The path.
            data: The body.
            headers: Further headers.

        Raises:
            ServerFull: The server has no room now.
            UpstreamLost: It cannot be reached, or its answer is no JSON. `BadStatus` if the status is no success.
        """
        return await self._json("POST", path, json=dict(data), headers=headers)

    def unexpected(self, path: str, what: str) -> NoReturn:
        """Say that an answer is not what the protocol has.

        Raises:
            UpstreamLost: Always.
        """
        raise UpstreamLost(f"{self.http.base_url} is no {self._what}: its answer to {path} {what}")

    def unreachable(self, error: Exception) -> UpstreamLost:
        """The fault for a request that failed."""
        why = self.scrubbed(str(error)) or type(error).__name__
        return UpstreamLost(f"the {self._what} {self.http.base_url} could not be reached: {why}")

    def scrubbed(self, text: str) -> str:
        """A text of the server without the secrets that it was sent."""
        for secret in self._hidden:
            text = text.replace(secret, "***")
        return text

    @asynccontextmanager
    async def answer(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        silent_seconds: float | None = None,
    ) -> AsyncGenerator[httpx2.Response]:
        """The answer to a request, to be read. While the server says that it is still starting, it is asked again.

        Args:
            method: The HTTP method.
            path: The path.
            json: The body.
            headers: Further headers.
            silent_seconds: Seconds that may pass without a byte of the answer; `None` for no limit.

        Raises:
            ServerFull: The server has no room now.
            BadStatus: The status is no success.
            HTTPError: From httpx2: the connection broke.
        """
        backoff = Backoff(_STARTING_SECONDS, longest=_LONGEST_PAUSE)
        url, moves = httpx2.URL(path), 0
        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=silent_seconds)
        while True:
            sent = {**self.headers, **(headers or {})}
            async with self.http.stream(method, url, json=json, headers=sent, timeout=timeout) as response:
                if response.status_code in _MOVED and moves < _MOST_MOVES:
                    url, moves = self._moved(response), moves + 1
                    continue
                if response.is_success:
                    yield response
                    return
                detail, wait = await self._detail(response), _retry_after(response)
            if response.headers.get("X-Backend-State") == "starting" and await backoff.wait(wait or 0.0):
                # The request has reached no environment.
                continue
            if response.status_code in _FULL:
                raise ServerFull(detail or f"HTTP status {response.status_code}", retry_after=wait)
            message = f"its answer to {path} has the HTTP status {response.status_code}"
            raise BadStatus(
                f"the {self._what} {self.http.base_url}: {message}{f': {detail}' if detail else ''}",
                response.status_code,
                detail,
            )

    def _moved(self, response: httpx2.Response) -> httpx2.URL:
        """Where an answer says that something is."""
        before = response.request.url
        url = before.join(response.headers.get("Location", ""))
        if (url.scheme, url.host, url.port) != (before.scheme, before.host, before.port):
            # Another server must not get the keys of this one.
            self.unexpected(before.path, f"leads to {url.scheme}://{url.host}, which is another server")
        return url

    async def _json(self, method: str, path: str, **request: Any) -> Any:
        try:
            async with self.answer(method, path, **request) as response:
                content = await self.text(response, path)
        except BadStatus as bad:
            if bad.status in _NOT_THERE:
                return None
            raise
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self.unreachable(error) from None
        try:
            return parsed(content)
        except ValueError as error:
            self.unexpected(path, f"is no JSON: {error}")

    async def text(self, response: httpx2.Response, path: str) -> str:
        """The text of an answer.

        Raises:
            UpstreamLost: It is too long, or no text.
            HTTPError: From httpx2: the connection broke.
        """
        content = bytearray()
        async for part in response.aiter_bytes():
            content += part
            if len(content) > MOST_BYTES:
                self.unexpected(path, f"has more than {MOST_BYTES // 2**20} MiB")
        try:
            return bytes(content).decode()
        except UnicodeDecodeError:
            self.unexpected(path, "is no text in UTF-8")

    async def _detail(self, response: httpx2.Response) -> str:
        content = bytearray()
        async for part in response.aiter_bytes():
            content += part
            if len(content) > MOST_BYTES:
                break
        text = bytes(content).decode("utf-8", "replace")
        try:
            said: Any = parsed(text)
        except ValueError:
            said = None
        detail: Any = cast("dict[str, Any]", said).get("detail") if isinstance(said, dict) else None
        return self.scrubbed(detail if isinstance(detail, str) else text)[:_MOST_DETAIL].strip()


def http_client(url: str) -> httpx2.AsyncClient:
    """A client for a server.

    Args:
        url: The server's URL.
    """
    # Reading the certificates takes 25 ms.
    verify = _certificates() if url.startswith("https:") else False
    return httpx2.AsyncClient(base_url=url, verify=verify)


@cache
def _certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


def _retry_after(response: httpx2.Response) -> float | None:
    text = response.headers.get("Retry-After", "").strip()
    return float(text) if text.isascii() and text.isdigit() else None


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
