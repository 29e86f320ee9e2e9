"""Episodes at a gateway. Requests whose answer is lost are sent again, and none is played twice."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from envport.backoff import Backoff
from envport.client import calls
from envport.client.addresses import EnvironmentAddress
from envport.client.channel import ChannelMissing
from envport.errors import ConfigurationError, EnvportError, GatewayUnreachable, Resuming
from envport.types import Choice, EnvironmentInfo, EpisodeInfo, LegalCall, TaskPage
from envport_bridges.rollouts.backend import CallReply, RolloutEpisode, RolloutTarget
from envport_bridges.rollouts.notices import WaitingNotice
from envport_bridges.rollouts.over_channel import OverChannel
from envport_bridges.rollouts.over_http import OverHttp
from envport_bridges.rollouts.ways import GatewayWay

__all__ = ["RemoteEpisodes"]

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class RemoteEpisodes:
    """An `EpisodeSource` at a gateway, over its rollout channel, or over HTTP where there is none.

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
        self._address = address
        self._target = target
        self._ids = secrets.token_hex(8)
        self._numbers = itertools.count()
        # True after a request has waited in vain. Until the gateway answers again, requests are sent only once.
        self._away = False
        self._waiting = WaitingNotice(target, "calls")
        self._choosing = asyncio.Lock()
        self._way: GatewayWay | None = None

    async def start(self) -> None:
        """Create the pool of connections."""
        self._http = OverHttp(self._target, self._address)

    def expect(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Prepare the calls of the tools."""
        self._http.expect(tools)

    async def describe(self) -> EnvironmentInfo:
        """The environment: tools, splits, limits."""
        return await self._http.control(calls.environment(self._address.name))

    async def tasks(self, split: str, offset: int, limit: int) -> TaskPage:
        """A page of the tasks of a split."""
        return await self._http.control(calls.tasks(self._address.name, split, offset, limit))

    async def open(self, choice: Choice, labels: Mapping[str, str], name: str) -> RolloutEpisode:
        """Open an episode. Its results contain rewards, unless somebody else plays it."""
        # The channel gives nobody a token. It keeps, finishes and closes the episode like any other.
        way = self._http if self._target.mint_tokens else await self._chosen()
        return await way.open(choice, labels, name)

    async def fork(self, episode: RolloutEpisode, step: int | None) -> RolloutEpisode:
        """Open a copy of an episode. The channel plays it like any other."""
        return await self._http.fork(episode, step)

    async def call(self, episode: RolloutEpisode, tool: str, arguments: Mapping[str, Any]) -> CallReply:
        """Call a tool."""
        # The call has an id, so it is executed once even if it is sent again, also to another replica.
        call_id = f"{self._ids}{next(self._numbers):x}"
        return await self._resent(lambda way: way.call(episode, tool, arguments, call_id))

    async def legal_calls(self, episode: RolloutEpisode) -> list[LegalCall] | None:
        """The calls that make sense now."""
        return await (await self._chosen()).legal_calls(episode)

    async def keep_alive(self, episode: RolloutEpisode) -> None:
        """Restart the idle time of an episode."""
        await (await self._chosen()).keep_alive(episode)

    async def finish(self, episode: RolloutEpisode) -> EpisodeInfo:
        """End an episode, and wait for its reward."""
        return await self._resent(lambda way: way.finish(episode))

    async def close(self, episode: RolloutEpisode) -> None:
        """Close an episode."""
        await (await self._chosen()).close(episode)

    async def stop(self) -> None:
        """Close the connections."""
        await self._http.stop()
        if self._way is not None and self._way is not self._http:
            await self._way.stop()

    async def _chosen(self) -> GatewayWay:
        """The way to the gateway, which the first request chooses."""
        if self._way is not None:
            return self._way
        async with self._choosing:
            if self._way is None:
                self._way = await self._tried() if self._target.channel else self._http
            return self._way

    async def _tried(self) -> GatewayWay:
        over_channel = OverChannel(self._target, self._address)
        try:
            await over_channel.connect()
        except ChannelMissing as missing:
            logger.info("%s is played over HTTP, which costs more: no WebSocket, %s", self._target.where, missing)
            return self._http
        return over_channel

    async def _resent(self, send: Callable[[GatewayWay], Awaitable[ResultT]]) -> ResultT:
        """Send a request, again if its answer is lost, for as long as the target is patient."""
        backoff: Backoff | None = None
        while True:
            try:
                answer = await send(self._way or await self._chosen())
            except (GatewayUnreachable, Resuming) as error:
                # A gateway that was restarted may need a while to put the episode back.
                timed_out = isinstance(error.__cause__, TimeoutError)
                self._waiting.say(error)
                backoff = backoff or Backoff(self._target.patience, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
                if self._away or timed_out or not await backoff.wait():
                    self._away = True
                    raise
            except EnvportError:
                self._away = False
                raise
            else:
                self._away = False
                self._waiting.over()
                return answer
