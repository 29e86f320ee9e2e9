"""Episodes at a gateway: opened over its control plane, played over MCP."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from envport.backoff import Backoff
from envport.client import calls
from envport.client.addresses import EnvironmentAddress, episode_path, mcp_address
from envport.client.calls import Call
from envport.errors import ConfigurationError, EnvportError, GatewayUnreachable, MissingExtra
from envport.types import Choice, EnvironmentInfo, EpisodeInfo, LegalCall, TaskPage
from envport_bridges.rollouts.backend import CallReply, RolloutEpisode, RolloutTarget
from envport_bridges.rollouts.notices import WaitingNotice
from envport_bridges.rollouts.wire import ToolCall, read_answer

try:
    import aiohttp
except ImportError:
    raise MissingExtra("Playing on a gateway", "rollouts") from None

__all__ = ["RemoteEpisodes"]

ResultT = TypeVar("ResultT")

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
        address = EnvironmentAddress.parse(target.where)
        if address is None:
            raise ConfigurationError(
                f"{target.where!r} does not name an environment of a gateway: http://HOST:PORT/environments/NAME"
            )
        if target.score is not None:
            raise ConfigurationError(
                f"the gateway at {address.gateway} scores its episodes itself: start it with envport serve --score "
                f"{target.score}, and leave out score here"
            )
        self._base, self._name = address.gateway, address.name
        self._headers = calls.headers_for(target.token)
        self._target = target
        self._calls: dict[str, ToolCall] = {}
        self._ids = secrets.token_hex(8)
        self._numbers = itertools.count()
        # True after a call has waited in vain. Until the gateway answers again, calls are sent only once.
        self._away = False
        self._waiting = WaitingNotice(target, "calls")
        self._http: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Create the pool of connections."""
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._target.connections, keepalive_timeout=_KEPT_CONNECTION_SECONDS),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    def expect(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Prepare the calls of the tools."""
        for tool in tools:
            if tool["name"] not in self._calls:
                self._calls[tool["name"]] = ToolCall.of(tool["name"], tool["inputSchema"])

    async def describe(self) -> EnvironmentInfo:
        """The environment: tools, splits, limits."""
        return await self._control(calls.environment(self._name))

    async def tasks(self, split: str, offset: int, limit: int) -> TaskPage:
        """A page of the tasks of a split."""
        return await self._control(calls.tasks(self._name, split, offset, limit))

    async def open(self, choice: Choice, labels: Mapping[str, str]) -> RolloutEpisode:
        """Open an episode whose results contain rewards."""
        opened = await self._control(
            calls.open_episode(
                self._name, choice, reward_in_meta=True, labels=labels, secrets=dict(self._target.secrets)
            )
        )
        return RolloutEpisode(
            episode_id=opened.episode_id,
            address=self._address(opened.episode_id, opened.mcp_url),
            prompt=opened.prompt,
            observation=opened.observation,
            seed=opened.seed,
            fingerprint=opened.fingerprint,
            tools=opened.tools,
        )

    async def call(self, episode: RolloutEpisode, tool: str, arguments: Mapping[str, Any]) -> CallReply:
        """Call a tool."""
        call = self._calls.get(tool)
        if call is None:
            call = self._calls[tool] = ToolCall.of(tool, {})
        body, headers = call.body(arguments, f"{self._ids}{next(self._numbers):x}"), call.headers_for(arguments)
        backoff = Backoff(self._target.patience, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while True:
            try:
                reply = read_answer(
                    *await self._send("POST", episode.address, body, headers, self._target.call_seconds)
                )
            except GatewayUnreachable as error:
                # The call has an id, so it is executed once even if it is sent again, also to another replica.
                timed_out = isinstance(error.__cause__, TimeoutError)
                self._waiting.say(error)
                if self._away or timed_out or not await backoff.wait():
                    self._away = True
                    raise
            except EnvportError:
                self._away = False
                raise
            else:
                self._away = False
                self._waiting.over()
                return reply

    async def legal_calls(self, episode: RolloutEpisode) -> list[LegalCall] | None:
        """The calls that make sense now."""
        return (await self._control(calls.legal_calls(episode.episode_id))).calls

    async def keep_alive(self, episode: RolloutEpisode) -> None:
        """Restart the idle time of an episode."""
        await self._control(calls.keep_alive(episode.episode_id))

    async def finish(self, episode: RolloutEpisode) -> EpisodeInfo:
        """End an episode, and wait for its reward. Sent again if there is no answer, up to the target's `patience`."""
        backoff = Backoff(self._target.patience, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while True:
            try:
                return await self._control(calls.finish(episode.episode_id))
            except GatewayUnreachable:
                if self._away or not await backoff.wait():
                    self._away = True
                    raise

    async def close(self, episode: RolloutEpisode) -> None:
        """Close an episode."""
        await self._control(calls.close_episode(episode.episode_id))

    async def stop(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()

    def _address(self, episode_id: str, mcp_url: str) -> str:
        """Where an episode is played. Always at the target's own address, so that no other host gets the token."""
        if mcp_url.startswith(f"{self._base}/"):
            return mcp_url
        return mcp_address(self._base, episode_path(episode_id))

    async def _control(self, call: Call[ResultT]) -> ResultT:
        data = json.dumps(call.json).encode("ascii") if call.json is not None else None
        headers = {"Content-Type": "application/json"} if data is not None else {}
        url = f"{self._base}{call.path}" + (f"?{urlencode(call.params)}" if call.params else "")
        # Opening an episode may take longer than a call, so a short call limit must not apply here.
        seconds = max(self._target.call_seconds, _CONTROL_SECONDS)
        status, _, body = await self._send(call.method, url, data, headers, seconds)
        return call.read(url, status, body)

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
