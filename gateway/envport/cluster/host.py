"""The episodes of one machine, played by whichever replica of the gateway asks."""

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
    """An `Opening` without what both sides have.

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
        """The opening without its environment."""
        return cls(opening.handle, opening.prompt, opening.observation, opening.seed)


@dataclass(frozen=True, slots=True)
class HostLoad:
    """How much a host is running.

    Attributes:
        live: Episodes that hold resources.
        capacity: How many there may be.
    """

    live: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a host says.

    Attributes:
        value: What was asked for.
        error: The code, the message and further fields of the error that was raised instead.
        lost: The episode was one of an earlier life of the host.
    """

    value: Any = None
    error: tuple[str, str, dict[str, Any]] | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Progressed:
    """A report of progress, before the answer.

    Attributes:
        report: The arguments of the sink.
    """

    report: tuple[float, float | None, str | None]


class Host:
    """Runs episodes, each in a process of its own.

    It holds everything that there is to know of them: limits, deadlines, latest answers, outcomes. Replicas come and
    go; what they ask for in the name of a call is done once.

    Args:
        name: Its name within the cluster.
        settings: What is run.
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
        """Answer a replica.

        Args:
            method: What to do: a public method of this class's own vocabulary, see `_METHODS`.
            life: The life that the episode began in, if it is about an episode.
            fields: The arguments.
        """
        return await self._answer(method, life, fields, None)

    async def ask_reporting(
        self, method: str, life: str | None, fields: dict[str, Any]
    ) -> AsyncIterator[Progressed | Answer]:
        """The same, with the reports of progress before the answer."""
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
