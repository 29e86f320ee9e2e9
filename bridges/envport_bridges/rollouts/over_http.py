"""Episodes at a gateway over HTTP: opened over its control plane, played over MCP."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from envport.client import calls
from envport.client.addresses import EnvironmentAddress, episode_path, mcp_address
from envport.client.calls import Call
from envport.client.reasons import reason_of
from envport.errors import GatewayUnreachable, MissingExtra
from envport.types import Choice, EpisodeInfo, LegalCall, OpenedEpisode
from envport_bridges.rollouts.backend import CallReply, RolloutEpisode, RolloutTarget
from envport_bridges.rollouts.wire import read_answer

try:
    import aiohttp
except ImportError:
    raise MissingExtra("Playing on a gateway", "rollouts", "pip install 'envport-client[rollouts]'") from None

if TYPE_CHECKING:
    from envport_bridges.rollouts.tool_calls import ToolCall

__all__ = ["OverHttp"]

ResultT = TypeVar("ResultT")

# Shorter than the idle timeout of servers, so that a server does not close a connection just as it is used.
_KEPT_CONNECTION_SECONDS = 3.0
_CONNECT_SECONDS = 10.0
_CONTROL_SECONDS = 60.0


class OverHttp:
    """A `GatewayWay` over a pool of HTTP connections.

    Args:
        target: The token and the settings.
        address: The environment.
    """

    def __init__(self, target: RolloutTarget, address: EnvironmentAddress):
        self._base, self._name = address.gateway, address.name
        self._target = target
        self._schemas: dict[str, Mapping[str, Any]] = {}
        self._calls: dict[str, ToolCall] = {}
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=target.connections, keepalive_timeout=_KEPT_CONNECTION_SECONDS),
            headers=calls.headers_for(target.token),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    def expect(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Remember the schemas of the tools: they say which arguments are also sent as headers."""
        for tool in tools:
            self._schemas.setdefault(tool["name"], tool["inputSchema"])

    async def open(self, choice: Choice, labels: Mapping[str, str], name: str) -> RolloutEpisode:
        """Open an episode. One whose answer is lost expires."""
        minted = self._target.mint_tokens
        return await self._opened(
            calls.open_episode(
                self._name,
                choice,
                # Whoever has the token must not see the rewards.
                reward_in_meta=not minted,
                mint_token=minted,
                labels=labels,
                secrets=dict(self._target.secrets),
            )
        )

    async def fork(self, episode: RolloutEpisode, step: int | None) -> RolloutEpisode:
        """Open a copy of an episode. One whose answer is lost expires."""
        return await self._opened(calls.fork(episode.episode_id, step, mint_token=self._target.mint_tokens))

    async def call(self, episode: RolloutEpisode, tool: str, arguments: Mapping[str, Any], call_id: str) -> CallReply:
        """Call a tool."""
        call = self._calls.get(tool)
        if call is None:
            call = self._calls[tool] = _tool_call(tool, self._schemas.get(tool, {}))
        body, headers = call.body(arguments, call_id), call.headers_for(arguments)
        return read_answer(*await self._send("POST", episode.address, body, headers, self._target.call_seconds))

    async def legal_calls(self, episode: RolloutEpisode) -> list[LegalCall] | None:
        """The calls that make sense now."""
        return (await self.control(calls.legal_calls(episode.episode_id))).calls

    async def keep_alive(self, episode: RolloutEpisode) -> None:
        """Restart the idle time of an episode."""
        await self.control(calls.keep_alive(episode.episode_id))

    async def finish(self, episode: RolloutEpisode) -> EpisodeInfo:
        """End an episode, and wait for its reward."""
        return await self.control(calls.finish(episode.episode_id))

    async def close(self, episode: RolloutEpisode) -> None:
        """Close an episode."""
        await self.control(calls.close_episode(episode.episode_id))

    async def stop(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def control(self, call: Call[ResultT]) -> ResultT:
        """Send a call of the control plane.

        Raises:
            EnvportError: The gateway's error, as the same class.
            GatewayUnreachable: There was no usable answer.
        """
        data = json.dumps(call.json).encode("ascii") if call.json is not None else None
        headers = {"Content-Type": "application/json"} if data is not None else {}
        url = f"{self._base}{call.path}" + (f"?{urlencode(call.params)}" if call.params else "")
        # Opening an episode may take longer than a call, so a short call limit must not apply here.
        seconds = max(self._target.call_seconds, _CONTROL_SECONDS)
        status, _, body = await self._send(call.method, url, data, headers, seconds)
        return call.read(url, status, body)

    async def _opened(self, call: Call[OpenedEpisode]) -> RolloutEpisode:
        opened = await self.control(call)
        return RolloutEpisode(
            episode_id=opened.episode_id,
            address=self._address(opened.episode_id, opened.mcp_url),
            prompt=opened.prompt,
            observation=opened.observation,
            seed=opened.seed,
            fingerprint=opened.fingerprint,
            tools=opened.tools,
            token=opened.token,
        )

    def _address(self, episode_id: str, mcp_url: str) -> str:
        """Where an episode is played. Always at the target's own address, so that no other host gets the token."""
        if mcp_url.startswith(f"{self._base}/"):
            return mcp_url
        return mcp_address(self._base, episode_path(episode_id))

    async def _send(
        self, method: str, url: str, data: bytes | None, headers: dict[str, str], seconds: float
    ) -> tuple[int, str, bytes]:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)
        try:
            async with self._http.request(
                method, url, data=data, headers=headers, allow_redirects=False, timeout=timeout
            ) as response:
                return response.status, response.headers.get("Content-Type", ""), await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise GatewayUnreachable(f"no answer from {self._base}: {reason_of(error)}") from error


def _tool_call(name: str, schema: Mapping[str, Any]) -> ToolCall:
    # Whoever plays over the channel needs no MCP, and may not have it.
    try:
        from envport_bridges.rollouts.tool_calls import ToolCall
    except ModuleNotFoundError:
        command = "pip install 'envport-client[http]'"
        raise MissingExtra("A gateway without a rollout channel", "http", command) from None
    return ToolCall.of(name, schema)
