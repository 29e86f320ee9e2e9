"""Episodes at a gateway over its rollout channel: opened and played on one WebSocket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from envport.client import calls
from envport.client.addresses import EnvironmentAddress, episode_path, mcp_address
from envport.client.channel import Channel
from envport.errors import GatewayUnreachable
from envport.types import CALL_ID_KEY, Choice, EpisodeInfo, LegalCall, LegalCalls, OpenedEpisode
from envport_bridges.rollouts.backend import CallReply, RolloutEpisode, RolloutTarget
from envport_bridges.rollouts.wire import read_result, written

__all__ = ["OverChannel"]

_CONTROL_SECONDS = 60.0


class OverChannel:
    """A `GatewayWay` over the rollout channel.

    Args:
        target: The token and the settings.
        address: The environment.
    """

    def __init__(self, target: RolloutTarget, address: EnvironmentAddress):
        self._target = target
        self._address = address
        self._channel = Channel(address.gateway, calls.headers_for(target.token))
        # Opening an episode may take longer than a call, so a short call limit must not apply to it.
        self._patient = max(target.call_seconds, _CONTROL_SECONDS)
        self._names: dict[str, bytes] = {}

    async def connect(self) -> None:
        """Connect.

        Raises:
            ChannelMissing: There is no channel.
            GatewayUnreachable: There is no answer.
            EnvportError: The gateway refuses the token.
        """
        await self._channel.connect()

    async def open(self, choice: Choice, labels: Mapping[str, str], name: str) -> RolloutEpisode:
        """Open an episode."""
        asked = calls.open_episode(
            self._address.name, choice, reward_in_meta=True, labels=labels, secrets=dict(self._target.secrets)
        )
        params = {**(asked.json or {}), "name": name}
        result = await self._channel.request("episodes/open", _json(params), self._patient)
        handle = str(result.get("episode_id"))
        address = mcp_address(self._address.gateway, episode_path(handle))
        try:
            opened = OpenedEpisode.model_validate({**result, "mcp_url": address})
        except ValidationError as error:
            raise GatewayUnreachable(f"{address} was opened with an answer that is not a gateway's: {error}") from None
        return RolloutEpisode(
            episode_id=handle,
            address=address,
            prompt=opened.prompt,
            observation=opened.observation,
            seed=opened.seed,
            fingerprint=opened.fingerprint,
            tools=opened.tools,
        )

    async def call(self, episode: RolloutEpisode, tool: str, arguments: Mapping[str, Any], call_id: str) -> CallReply:
        """Call a tool."""
        name = self._names.get(tool)
        if name is None:
            name = self._names[tool] = _json(tool)
        handle = episode.episode_id.encode("ascii")
        params = _CALL % (name, handle, call_id.encode("ascii"), written(arguments))
        return read_result(await self._channel.request("tools/call", params, self._target.call_seconds))

    async def legal_calls(self, episode: RolloutEpisode) -> list[LegalCall] | None:
        """The calls that make sense now."""
        return LegalCalls.model_validate(await self._ask("legal_calls", episode, self._patient)).calls

    async def keep_alive(self, episode: RolloutEpisode) -> None:
        """Restart the idle time of an episode."""
        await self._ask("keep_alive", episode, self._patient)

    async def finish(self, episode: RolloutEpisode) -> EpisodeInfo:
        """End an episode, and wait for its reward, for as long as its environment needs to score it."""
        return EpisodeInfo.model_validate(await self._ask("finish", episode, None))

    async def close(self, episode: RolloutEpisode) -> None:
        """Close an episode."""
        await self._ask("close", episode, self._patient)

    async def stop(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def _ask(self, what: str, episode: RolloutEpisode, seconds: float | None) -> dict[str, Any]:
        return await self._channel.request(f"episodes/{what}", _json({"episode_id": episode.episode_id}), seconds)


_CALL = b'{"name":%b,"_meta":{"envport/episode_id":"%b","' + CALL_ID_KEY.encode("ascii") + b'":"%b"},"arguments":%b}'


def _json(value: Any) -> bytes:
    return json.dumps(value).encode("ascii")
