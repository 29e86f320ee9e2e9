"""Episodes at a gateway: opened over its control plane, played over MCP."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import secrets
import time
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote, urlsplit

from envport.errors import ConfigurationError, EnvportError, GatewayUnreachable, MissingExtra, error_from_code
from envport.types import EnvironmentInfo, Observation, TaskPage
from envport_bridges.rollouts.backend import CallReply, OpenRequest, RolloutEpisode, RolloutTarget
from envport_bridges.rollouts.wire import ToolCall, read_answer

try:
    import aiohttp
except ImportError:
    raise MissingExtra("Playing on a gateway", "rollouts") from None

__all__ = ["RemoteEpisodes"]

# Shorter than the idle timeout of servers, so that a server does not close a connection just as it is used.
_KEPT_CONNECTION_SECONDS = 3.0
_CONNECT_SECONDS = 10.0
_CONTROL_SECONDS = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class RemoteEpisodes:
    """An `EpisodeSource` at a gateway. All episodes share a few connections.

    Args:
        target: URL of the environment, and the token.

    Raises:
        ConfigurationError: The URL does not name an environment.
    """

    def __init__(self, target: RolloutTarget):
        self._base, self._name = _split(target.where)
        token = target.token if target.token is not None else os.environ.get("ENVPORT_TOKEN")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._target = target
        self._calls: dict[str, ToolCall] = {}
        self._ids = secrets.token_hex(8)
        self._numbers = itertools.count()
        # True after a call has waited in vain. Until the gateway answers again, calls are sent only once.
        self._away = False
        self._http: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Create the pool of connections."""
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._target.connections, keepalive_timeout=_KEPT_CONNECTION_SECONDS),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    def expect(self, info: EnvironmentInfo) -> None:
        """Prepare the calls of the tools."""
        if not self._calls:
            self._calls = {tool["name"]: ToolCall.of(tool["name"], tool["inputSchema"]) for tool in info.tools}

    async def describe(self) -> EnvironmentInfo:
        """The environment: tools, splits, limits."""
        return EnvironmentInfo.model_validate(await self._control("GET", self._environment))

    async def tasks(self, split: str, offset: int, limit: int) -> TaskPage:
        """A page of the tasks of a split."""
        query = f"split={quote(split, safe='')}&offset={offset}&limit={limit}"
        return TaskPage.model_validate(await self._control("GET", f"{self._environment}/tasks?{query}"))

    async def open(self, request: OpenRequest) -> RolloutEpisode:
        """Open an episode whose results contain rewards."""
        body: dict[str, Any] = {"environment": self._name, "reward_in_meta": True}
        chosen = {"split": request.split, "task": request.task, "seed": request.seed}
        opened = await self._control(
            "POST", "/episodes", body | {key: value for key, value in chosen.items() if value is not None}
        )
        return RolloutEpisode(
            episode_id=opened["episode_id"],
            address=self._address(opened["episode_id"], opened["mcp_url"]),
            observation=Observation.model_validate(opened["observation"]),
            seed=opened["seed"],
        )

    async def call(self, episode: RolloutEpisode, tool: str, arguments: Mapping[str, Any]) -> CallReply:
        """Call a tool."""
        call = self._calls.get(tool)
        if call is None:
            call = self._calls[tool] = ToolCall.of(tool, {})
        body, headers = call.body(arguments, f"{self._ids}{next(self._numbers):x}"), call.headers_for(arguments)
        began, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            try:
                reply = read_answer(
                    *await self._send("POST", episode.address, body, headers, self._target.call_seconds)
                )
            except GatewayUnreachable as error:
                # The call has an id, so it is executed once even if it is sent again, also to another replica.
                waited = time.monotonic() - began + pause
                if self._away or isinstance(error.__cause__, TimeoutError) or waited > self._target.patience:
                    self._away = True
                    raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            except EnvportError:
                self._away = False
                raise
            else:
                self._away = False
                return reply

    async def keep_alive(self, episode: RolloutEpisode) -> None:
        """Restart the idle time of an episode."""
        await self._control("POST", f"/episodes/{episode.episode_id}/keepalive")

    async def close(self, episode: RolloutEpisode) -> None:
        """Close an episode."""
        await self._control("DELETE", f"/episodes/{episode.episode_id}")

    async def stop(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()

    @property
    def _environment(self) -> str:
        return f"/environments/{quote(self._name, safe='')}"

    def _address(self, episode_id: str, mcp_url: str) -> str:
        """Where an episode is played. Always at the target's own address, so that no other host gets the token."""
        if mcp_url.startswith(f"{self._base}/"):
            return mcp_url
        return f"{self._base}/episodes/{quote(episode_id, safe='')}/mcp"

    async def _control(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = json.dumps(body).encode("ascii") if body is not None else None
        headers = {"Content-Type": "application/json"} if data is not None else {}
        # Opening an episode may take longer than a call, so a short call limit must not apply here.
        seconds = max(self._target.call_seconds, _CONTROL_SECONDS)
        status, _, answer = await self._send(method, f"{self._base}{path}", data, headers, seconds)
        try:
            fields = json.loads(answer)
            if status < 300:
                return cast("dict[str, Any]", fields)
            error = dict(fields["error"])
            raise error_from_code(error.pop("code"), error.pop("message"), **error)
        except (ValueError, KeyError, TypeError):
            raise GatewayUnreachable(f"{self._base}{path} answered {status}: {answer[:200]!r}") from None

    async def _send(
        self, method: str, url: str, data: bytes | None, headers: dict[str, str], seconds: float
    ) -> tuple[int, str, bytes]:
        assert self._http is not None
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)
        try:
            async with self._http.request(
                method, url, data=data, headers=headers, allow_redirects=False, timeout=timeout
            ) as response:
                return response.status, response.headers.get("Content-Type", ""), await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise GatewayUnreachable(f"no answer from {self._base}: {error or type(error).__name__}") from error


def _split(where: str) -> tuple[str, str]:
    parts = urlsplit(where)
    path = parts.path.rstrip("/").removesuffix("/mcp")
    base, separator, name = path.rpartition("/environments/")
    if parts.scheme not in ("http", "https") or not parts.netloc or not separator or not name or "/" in name:
        raise ConfigurationError(
            f"{where!r} does not name an environment of a gateway: http://HOST:PORT/environments/NAME"
        )
    return f"{parts.scheme}://{parts.netloc}{base}", name
