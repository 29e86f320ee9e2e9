"""The episodes of a cluster, for the surfaces of one replica. The replica itself stores no episode."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from heapq import nlargest
from typing import Any

from envport.cluster.handles import Handles, Route
from envport.cluster.hosts import HostLost, Hosts
from envport.cluster.messages import (
    AnswerT,
    CallMessage,
    CloseMessage,
    EpisodeMessage,
    FinishMessage,
    HostLoad,
    InfoMessage,
    KeepAliveMessage,
    LegalCallsMessage,
    ListMessage,
    LoadMessage,
    OpenedThere,
    OpeningMessage,
    OpenMessage,
    ResetMessage,
    TrajectoryMessage,
)
from envport.definition import EnvironmentDefinition, served
from envport.episodes import CallResult, Found, Limits, Opening, OpenRequest, Preparation, whose
from envport.errors import AtCapacity, Draining, EnvportError, EpisodeFailed, InvalidRequest, UnknownEpisode
from envport.runtimes import ProgressSink
from envport.types import Choice, EpisodeInfo, LegalCall, Outcome, Trajectory

__all__ = ["ClusterTable"]

logger = logging.getLogger(__name__)

_LOAD_SECONDS = 1.0
# Hosts that are asked for their load at a time. In a large cluster, asking all of them would be all that replicas do.
_ASKED_AT_A_TIME = 50
_NO_HOST_RETRY = 5.0
_FURTHEST = ("ready", "preparing", "failed")
_LOST = "The machine that ran the episode was lost."


class ClusterTable:
    """An `EpisodeTable` whose episodes run on hosts.

    Args:
        environments: The environments that can be played; the hosts run them.
        hosts: The hosts.
        load_seconds: Time between two requests for loads. Up to 50 hosts are asked at a time, in turn.
    """

    def __init__(
        self, environments: Iterable[EnvironmentDefinition], hosts: Hosts, *, load_seconds: float = _LOAD_SECONDS
    ):
        self._hosts = hosts
        self._load_seconds = load_seconds
        self._limits = Limits(**hosts.settings.limits)
        self._environments = {spec.name: spec for spec in environments}
        # In the order of the cluster's settings, because a handle names its environment by position.
        self._by_place = [self._environments[name] for name in hosts.settings.environments]
        self._handles = Handles(hosts.settings.secret)
        self._loads: dict[str, HostLoad] = {}
        # Episodes opened on each host since it last reported its load.
        self._opened: dict[str, int] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._draining = False

    @property
    def environments(self) -> Mapping[str, EnvironmentDefinition]:
        """The environments that can be played."""
        return self._environments

    @property
    def limits(self) -> Limits:
        """Limits on the episodes of each host."""
        return self._limits

    @property
    def replicated(self) -> bool:
        """True: every replica of the cluster serves these episodes."""
        return True

    @property
    def live(self) -> int:
        """How many episodes hold resources on all hosts, as last reported."""
        return sum(load.live for load in self._loads.values())

    @property
    def draining(self) -> bool:
        """Whether this replica has stopped opening episodes."""
        return self._draining

    @property
    def preparations(self) -> Mapping[str, Preparation]:
        """The preparation status of each environment: that of the host which is furthest."""
        return {name: self._preparation(name) for name in self._environments}

    def _preparation(self, name: str) -> Preparation:
        found = [load.preparations[name] for load in self._loads.values()]
        absent = Preparation("failed", "no machine of the cluster answers")
        return min(found, key=lambda it: _FURTHEST.index(it.status), default=absent)

    def take_no_more(self) -> None:
        """Stop opening episodes through this replica."""
        self._draining = True

    async def drain(self, seconds: float) -> None:
        """Stop opening episodes through this replica. No episode is lost: other replicas go on playing them."""
        self.take_no_more()

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Watch the hosts. Episodes continue after the replica ends."""
        async with self._hosts.run():
            await self._ask_loads(self._hosts.names())
            watching = asyncio.create_task(self._watch())
            try:
                yield
            finally:
                watching.cancel()
                await asyncio.gather(watching, *self._tasks, return_exceptions=True)

    def environment(self, name: str) -> EnvironmentDefinition:
        """The environment with that name."""
        return served(self._environments, name)

    async def open(self, request: OpenRequest) -> Opening:
        """Open an episode on the host with the most free capacity."""
        spec = self.environment(request.environment)
        request = request.checked(spec)
        if self._draining:
            raise Draining
        hosts = self._by_room()
        for host in hosts:
            try:
                return _opening(spec, await self._open_at(host, request._replace(wait=False)))
            except (AtCapacity, HostLost):
                continue
        for host in hosts[:1]:
            try:
                return _opening(spec, await self._open_at(host, request))
            except HostLost:
                break
        raise AtCapacity("No machine of the cluster takes episodes now. Try again in a while.", _NO_HOST_RETRY)

    def opens_at_once(self, environment: str, principal: str) -> bool:
        """Always false: episodes run elsewhere."""
        return False

    def find(self, handle: str, principal: str) -> Found:
        """The episode of that handle. It may be closed or expired: only its host knows that."""
        place = self._handles.read(handle, principal).environment
        if place >= len(self._by_place):
            raise UnknownEpisode
        return Found(handle, principal, self._by_place[place])

    async def opening(self, found: Found) -> Opening:
        """The opening of the episode."""
        return _opening(found.spec, await self._ask(OpeningMessage(found.handle, found.principal)))

    async def call(
        self,
        found: Found,
        tool: str,
        arguments: Mapping[str, Any],
        progress: ProgressSink | None = None,
        call_id: str | None = None,
    ) -> CallResult:
        """Call a tool. If the network loses the call, it is sent again, but executed only once."""
        sent = call_id or secrets.token_urlsafe(16)
        return await self._ask(CallMessage(found.handle, found.principal, tool, arguments, sent), progress)

    def at_once(self, found: Found) -> bool:
        """Always false: the episode runs elsewhere."""
        return False

    async def legal_calls(self, found: Found) -> list[LegalCall] | None:
        """The calls that make sense now; `None` if the environment does not say."""
        return await self._ask(LegalCallsMessage(found.handle, found.principal))

    async def info(self, handle: str, principal: str) -> EpisodeInfo:
        """The state of an episode, even if its machine is gone."""
        return await self._ask_info(InfoMessage(handle, principal))

    async def list_episodes(self, principal: str, labels: Mapping[str, str], limit: int) -> list[EpisodeInfo]:
        """The principal's episodes that have these labels, on all machines that answer, the newest first."""
        message = ListMessage(principal, dict(labels), limit)
        asked = (self._hosts.ask(host, message) for host in self._hosts.names())
        found: list[EpisodeInfo] = []
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, list):
                found.extend(answer)
            elif not isinstance(answer, HostLost | EnvportError):
                raise answer
        return nlargest(limit, found, key=lambda info: info.created_at)

    async def keep_alive(self, found: Found) -> EpisodeInfo:
        """Restart the idle time of an episode."""
        return await self._ask(KeepAliveMessage(found.handle, found.principal))

    async def reset(self, found: Found, choice: Choice) -> Opening:
        """Start an episode over, on its own host."""
        return _opening(found.spec, await self._ask(ResetMessage(found.handle, found.principal, choice)))

    async def close(self, handle: str, principal: str) -> EpisodeInfo:
        """Close an episode."""
        return await self._ask_info(CloseMessage(handle, principal))

    async def fork(
        self, handle: str, principal: str, step: int | None = None, labels: Mapping[str, str] | None = None
    ) -> Opening:
        """Refused.

        Raises:
            UnknownEpisode: The episode is not the principal's.
            InvalidRequest: It is.
        """
        self.find(handle, principal)
        raise InvalidRequest("Episodes that run on a cluster cannot be forked.")

    async def finish(self, handle: str, principal: str) -> EpisodeInfo:
        """End an episode on its own host, and wait until its reward is known."""
        return await self._ask_info(FinishMessage(handle, principal))

    async def trajectory(self, handle: str, principal: str) -> Trajectory:
        """The trajectory of an episode. Without a store, it is in its host's memory, and lost with the host."""
        return await self._ask(TrajectoryMessage(handle, principal))

    async def _ask_info(self, message: EpisodeMessage[EpisodeInfo]) -> EpisodeInfo:
        route = self._handles.read(message.handle, message.principal)
        try:
            return await self._hosts.ask(route.host, message, route.life)
        except HostLost:
            return self._lost(message.handle, route)

    async def _ask(self, message: EpisodeMessage[AnswerT], progress: ProgressSink | None = None) -> AnswerT:
        route = self._handles.read(message.handle, message.principal)
        try:
            return await self._hosts.ask(route.host, message, route.life, progress)
        except HostLost:
            raise EpisodeFailed(
                f"{_LOST} The episode has ended. This is a fault of the infrastructure, not of your call. "
                "Start a new episode.",
                "infrastructure",
                "worker_lost",
            ) from None

    def _lost(self, handle: str, route: Route) -> EpisodeInfo:
        return EpisodeInfo(
            episode_id=handle,
            environment=self._by_place[route.environment].name,
            seed=None,
            status="failed",
            outcome=Outcome(
                status="failed",
                reason="worker_lost",
                message=f"{_LOST} {whose('infrastructure')}",
                fault="infrastructure",
            ),
            created_at=route.created_at,
        )

    async def _open_at(self, host: str, request: OpenRequest) -> OpenedThere:
        self._opened[host] = self._opened.get(host, 0) + 1
        opening = self._spawn(self._hosts.ask(host, OpenMessage(request)))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The caller is gone and nobody else knows the handle, so close the episode.
            self._spawn(self._close_unclaimed(opening, request.principal))
            raise
        except (HostLost, EnvportError):
            self._opened[host] -= 1
            raise

    async def _close_unclaimed(self, opening: asyncio.Task[OpenedThere], principal: str) -> None:
        try:
            await self.close((await opening).handle, principal)
        except (HostLost, EnvportError) as error:
            logger.debug("an episode whose caller disconnected was not closed: %s", error)

    def _spawn(self, work: Coroutine[Any, Any, AnswerT]) -> asyncio.Task[AnswerT]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _by_room(self) -> list[str]:
        def taken(host: str) -> float:
            load = self._loads.get(host)
            live = (load.live if load is not None else 0) + self._opened.get(host, 0)
            return live / max(1, load.capacity if load is not None else 1)

        hosts = list(self._hosts.names())
        # Shuffle first: replicas that know the same loads must not all choose the same host.
        random.shuffle(hosts)
        return sorted(hosts, key=taken)

    async def _watch(self) -> None:
        following = 0
        while True:
            await asyncio.sleep(self._load_seconds)
            hosts = self._hosts.names()
            following = following if following < len(hosts) else 0
            await self._ask_loads(hosts[following : following + _ASKED_AT_A_TIME])
            following += _ASKED_AT_A_TIME

    async def _ask_loads(self, hosts: Sequence[str]) -> None:
        loads = dict(zip(hosts, await asyncio.gather(*map(self._ask_load, hosts)), strict=True))
        known = self._loads | loads
        self._loads = {host: load for host in self._hosts.names() if (load := known.get(host)) is not None}

    async def _ask_load(self, host: str) -> HostLoad | None:
        before = self._opened.get(host, 0)
        try:
            load = await self._hosts.ask(host, LoadMessage())
        except (HostLost, EnvportError):
            return None
        except Exception:
            # A bug in one host must not hide the loads of the others.
            logger.exception("host %s did not report its load", host)
            return None
        self._opened[host] = max(0, self._opened.get(host, 0) - before)
        return load


def _opening(spec: EnvironmentDefinition, there: OpenedThere) -> Opening:
    tools = spec.toolset_for(there.task)
    return Opening(there.handle, spec, there.prompt, there.observation, there.seed, tools, there.task)
