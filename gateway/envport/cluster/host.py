"""The episodes of one machine. Any replica of the gateway may play them."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envport.cluster.handles import Handles, Route
from envport.cluster.messages import HostMessage
from envport.cluster.settings import ClusterSettings
from envport.episodes import Episodes, Limits
from envport.errors import AtCapacity, EnvportError, error_fields
from envport.runtimes import ProgressSink
from envport.runtimes.origin import Origin
from envport.trajectories import MemoryTrajectories, TrajectoryStore

__all__ = ["Answer", "Host", "Progressed"]


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
        self._table = Episodes(
            specs,
            Limits(**settings.limits),
            trajectories=_store(settings.store),
            runtime="process",
            new_handle=self._handle,
        )
        self._running: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._stopping = asyncio.Event()

    async def ask(self, message: HostMessage[Any], life: str | None) -> Answer:
        """Answer a request of a replica.

        Args:
            message: The request.
            life: The life of the host in which the episode began, if the request is about an episode.
        """
        return await self._answer(message, life, None)

    async def ask_reporting(self, message: HostMessage[Any], life: str | None) -> AsyncIterator[Progressed | Answer]:
        """Answer a request of a replica, with progress reports before the answer."""
        loop = asyncio.get_running_loop()
        said: asyncio.Queue[Progressed | Answer] = asyncio.Queue()

        def sink(progress: float, total: float | None = None, message: str | None = None) -> None:
            loop.call_soon_threadsafe(said.put_nowait, Progressed((progress, total, message)))

        async def work() -> None:
            answer = await self._answer(message, life, sink)
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

    async def _answer(self, message: HostMessage[Any], life: str | None, progress: ProgressSink | None) -> Answer:
        if life is not None and life != self._life:
            return Answer(lost=True)
        await self._start()
        try:
            return Answer(await message.answer(self._table, progress))
        except EnvportError as error:
            more = error_fields(error)
            code, said = more.pop("code"), more.pop("message")
            if isinstance(error, AtCapacity):
                more["limit"] = error.limit
            return Answer(error=(code, said, more))

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


def _store(url: str | None) -> TrajectoryStore:
    if url is None:
        return MemoryTrajectories()
    # Imported only here: it imports SQLAlchemy.
    from envport.trajectories.recorder import DatabaseTrajectories

    # What is on this machine is lost with it.
    return DatabaseTrajectories(url, journals=Path(tempfile.mkdtemp(prefix="envport-journals-")), in_database=True)
