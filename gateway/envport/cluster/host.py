"""The episodes of one machine. Any replica of the gateway may play them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from envport.cluster.handles import Handles, Route
from envport.cluster.settings import ClusterSettings
from envport.episodes import CallResult, Episodes, Limits, LocalTable, Opening
from envport.errors import AtCapacity, EnvportError
from envport.runtimes import ProgressSink
from envport.runtimes.origin import Origin
from envport.types import Observation

__all__ = ["Answer", "Host", "HostLoad", "OpenedThere", "Progressed"]


@dataclass(frozen=True, slots=True)
class OpenedThere:
    """An `Opening` without its environment, which the replica already has.

    Attributes:
        handle: The episode's handle.
        prompt: What the player is told to do.
        observation: The first observation.
        seed: The seed in use.
    """

    handle: str
    prompt: str
    observation: Observation
    seed: int

    @classmethod
    def of(cls, opening: Opening) -> OpenedThere:
        """Leave the environment out of an opening."""
        return cls(opening.handle, opening.prompt, opening.observation, opening.seed)


@dataclass(frozen=True, slots=True)
class HostLoad:
    """The current load of a host.

    Attributes:
        live: Episodes that hold resources.
        capacity: The most episodes that may hold resources.
    """

    live: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A host's answer.

    Attributes:
        value: The result.
        error: The code, the message and further fields of the error, if one was raised.
        lost: The episode belongs to an earlier life of the host, and is lost.
    """

    value: Any = None
    error: tuple[str, str, dict[str, Any]] | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Progressed:
    """A progress report, sent before the answer.

    Attributes:
        report: The arguments for the progress sink.
    """

    report: tuple[float, float | None, str | None]


class Host:
    """Runs episodes, each in its own process.

    It holds all of their state: limits, deadlines, latest answers, outcomes. Replicas may come and go. A call has an
    id and is executed once, even if it is sent again.

    Args:
        name: Name of the host within the cluster.
        settings: The settings of the cluster.
    """

    def __init__(self, name: str, settings: ClusterSettings):
        self._name = name
        self._life = secrets.token_hex(4)
        self._handles = Handles(settings.secret)
        self._places = {name: place for place, name in enumerate(settings.environments)}
        specs = {name: Origin(**origin).load() for name, origin in settings.environments.items()}
        self._episodes = Episodes(specs, Limits(**settings.limits), runtime="process", new_handle=self._handle)
        self._table = LocalTable(self._episodes)
        self._running: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._stopping = asyncio.Event()

    async def ask(self, method: str, life: str | None, fields: dict[str, Any]) -> Answer:
        """Answer a request of a replica.

        Args:
            method: The method to call, one of `_METHODS`.
            life: The life of the host in which the episode began, if the request is about an episode.
            fields: The arguments.
        """
        return await self._answer(method, life, fields, None)

    async def ask_reporting(
        self, method: str, life: str | None, fields: dict[str, Any]
    ) -> AsyncIterator[Progressed | Answer]:
        """Answer a request of a replica, with progress reports before the answer."""
        loop = asyncio.get_running_loop()
        said: asyncio.Queue[Progressed | Answer] = asyncio.Queue()

        def sink(progress: float, total: float | None = None, message: str | None = None) -> None:
            loop.call_soon_threadsafe(said.put_nowait, Progressed((progress, total, message)))

        async def work() -> None:
            answer = await self._answer(method, life, fields, sink)
            loop.call_soon(said.put_nowait, answer)

        working = asyncio.create_task(work())
        while not isinstance(one := await said.get(), Answer):
            yield one
        await working
        yield one

    async def stop(self) -> None:
        """Close every episode."""
        self._stopping.set()
        if self._running is not None:
            await self._running

    async def _answer(
        self, method: str, life: str | None, fields: dict[str, Any], progress: ProgressSink | None
    ) -> Answer:
        if life is not None and life != self._life:
            return Answer(lost=True)
        await self._start()
        try:
            if method == "call":
                fields = {**fields, "progress": progress}
            return Answer(await getattr(self, _METHODS[method])(**fields))
        except EnvportError as error:
            more = {"retry_after": error.retry_after, "limit": error.limit} if isinstance(error, AtCapacity) else {}
            return Answer(error=(error.code, str(error), more))

    async def _start(self) -> None:
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        await self._started.wait()

    async def _run(self) -> None:
        async with self._table.run():
            self._started.set()
            await self._stopping.wait()

    def _handle(self, environment: str, principal: str) -> str:
        route = Route(self._name, self._life, self._places[environment], int(time.time()))
        return self._handles.make(route, principal)

    async def _load(self) -> HostLoad:
        return HostLoad(self._table.live, self._table.limits.max_episodes)

    async def _open(self, **wanted: Any) -> OpenedThere:
        return OpenedThere.of(await self._table.open(**wanted))

    async def _opening(self, handle: str, principal: str) -> OpenedThere:
        return OpenedThere.of(await self._table.opening(self._table.find(handle, principal)))

    async def _call(
        self,
        handle: str,
        principal: str,
        tool: str,
        arguments: Mapping[str, Any],
        call_id: str,
        progress: ProgressSink | None,
    ) -> CallResult:
        found = self._table.find(handle, principal)
        return await self._table.call(found, tool, arguments, progress, call_id)

    async def _info(self, handle: str, principal: str) -> Any:
        return await self._table.info(handle, principal)

    async def _keep_alive(self, handle: str, principal: str) -> Any:
        return await self._table.keep_alive(self._table.find(handle, principal))

    async def _reset(self, handle: str, principal: str, **wanted: Any) -> OpenedThere:
        return OpenedThere.of(await self._table.reset(self._table.find(handle, principal), **wanted))

    async def _close(self, handle: str, principal: str) -> Any:
        return await self._table.close(handle, principal)

    async def _trajectory(self, handle: str, principal: str) -> Any:
        return await self._table.trajectory(handle, principal)


_METHODS = {
    name: f"_{name}"
    for name in ("load", "open", "opening", "call", "info", "keep_alive", "reset", "close", "trajectory")
}
