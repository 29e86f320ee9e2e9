"""A caller over HTTP, for the load generator: a connection, and an episode and a session if the target has them."""

from __future__ import annotations

import json
from typing import Any, Self

import aiohttp
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from envport.bench.jobs import BadAnswer, Refused
from envport.bench.targets import BenchTarget

__all__ = ["LoadCaller"]

_MODERN, _LEGACY = "2026-07-28", "2025-11-25"
_CLIENT = {"name": "envport-bench", "version": "1"}
_META = {
    PROTOCOL_VERSION_META_KEY: _MODERN,
    CLIENT_CAPABILITIES_META_KEY: {},
    CLIENT_INFO_META_KEY: _CLIENT,
}
_ACCEPT = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class LoadCaller:
    """One caller: a connection, and an episode and a session if the target has them.

    Args:
        target: The target to call.
        url: Address of its server.
    """

    def __init__(self, target: BenchTarget, url: str):
        self._target = target
        self._http = aiohttp.ClientSession(
            url,
            connector=aiohttp.TCPConnector(limit=1),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=60),
        )
        self._episode = ""
        routing = {"MCP-Protocol-Version": _MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "echo"}
        self._headers = _ACCEPT if target.era == "legacy" else _ACCEPT | routing
        self._calls = 0

    @property
    def episode(self) -> str:
        """The handle of the episode that it plays."""
        return self._episode

    @property
    def _path(self) -> str:
        return self._target.path.format(episode=self._episode)

    async def begin(self) -> Self:
        """Open an episode and a session, if the target needs them."""
        if self._target.plays:
            self._episode = await self.open_episode()
        if self._target.era == "legacy":
            await self._begin_session()
        return self

    async def open_episode(self) -> str:
        """Open an episode, and return its handle."""
        _, body = await self._request("POST", "/episodes", {"environment": "echo"}, expect=201)
        return json.loads(body)["episode_id"]

    def sit_down(self, handle: str) -> None:
        """Play this episode from now on."""
        self._episode = handle

    async def call(self) -> None:
        """Call the tool, and check its answer."""
        self._calls += 1
        message = f"{self._episode} says {self._calls}"
        arguments = {"message": message}
        if self._target.passes_episode_id:
            arguments["episode_id"] = self._episode
        params: dict[str, Any] = {"name": "echo", "arguments": arguments}
        if self._target.era == "modern":
            params["_meta"] = _META
        call = {"jsonrpc": "2.0", "id": self._calls, "method": "tools/call", "params": params}
        _, body = await self._request("POST", self._path, call)
        answer = json.loads(body)
        result = answer.get("result", {})
        said = [block.get("text") for block in result.get("content", [])]
        if answer.get("id") != self._calls or said != [message] or result.get("isError"):
            raise BadAnswer(f"{self._target.name} was told {message!r} and answered {body[:500]!r}")

    async def end(self) -> None:
        """End the session and the episode."""
        if self._target.era == "legacy":
            await self._request("DELETE", self._path)
        if self._episode:
            await self.close_episode(self._episode)

    async def close_episode(self, handle: str) -> dict[str, Any]:
        """Close an episode, and return its last state."""
        _, body = await self._request("DELETE", f"/episodes/{handle}")
        return json.loads(body)

    async def readiness(self) -> dict[str, Any]:
        """The gateway's readiness report."""
        _, body = await self._request("GET", "/readyz")
        return json.loads(body)

    async def hang_up(self) -> None:
        """Close the connection and leave everything else as it is."""
        await self._http.close()

    async def _begin_session(self) -> None:
        params = {"protocolVersion": _LEGACY, "capabilities": {}, "clientInfo": _CLIENT}
        first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        headers, _ = await self._request("POST", self._path, first)
        session = {"Mcp-Session-Id": headers["Mcp-Session-Id"], "MCP-Protocol-Version": _LEGACY}
        self._headers = _ACCEPT | session
        second = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._request("POST", self._path, second, expect=202)

    async def _request(self, method: str, path: str, json_body: Any = None, expect: int = 200) -> tuple[Any, bytes]:
        data = json.dumps(json_body).encode() if json_body is not None else None
        headers = self._headers if path == self._path else _ACCEPT
        async with self._http.request(method, path, data=data, headers=headers) as response:
            body = await response.read()
            if response.status == 503 and "Retry-After" in response.headers:
                raise Refused(f"{method} {path} was refused: {body[:500]!r}", float(response.headers["Retry-After"]))
            if response.status != expect:
                raise BadAnswer(f"{method} {path} was answered {response.status}, not {expect}: {body[:500]!r}")
            return response.headers, body
