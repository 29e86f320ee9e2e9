"""Looking up the episodes that are in a database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, delete, insert, select

from envport.errors import StoreUnavailable
from envport.trajectories import reading
from envport.trajectories.archive import EpisodeFilter, EpisodePage, Period, StoredEpisode
from envport.trajectories.changes import Changes
from envport.trajectories.database import Database
from envport.trajectories.schema import attachments, episodes
from envport.types import StepRecord

__all__ = ["DatabaseArchive"]

ResultT = TypeVar("ResultT")

_POLL_SECONDS = 0.5


class DatabaseArchive:
    """An `Archive` in a database.

    Args:
        database: The database.
        flush: Waits until what was recorded in this process is in the database.
        own: Name of this process's journal, whose changes are published by `changes`.
        changes: Tells of what is recorded in this process.
    """

    def __init__(
        self,
        database: Database,
        flush: Callable[[], Awaitable[None]] | None = None,
        own: str = "",
        changes: Changes | None = None,
    ):
        self._database = database
        self._flush = flush
        self._own = own
        self._changes = changes or Changes()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the database."""
        self._database.close()

    async def find(self, wanted: EpisodeFilter, limit: int = 100, after: str | None = None) -> EpisodePage:
        """The episodes that a filter lets through, the newest first."""
        return await self._read(partial(reading.find_episodes, wanted=wanted, limit=limit, after=after))

    async def count(self, wanted: EpisodeFilter) -> int:
        """How many episodes a filter lets through."""
        return await self._read(partial(reading.count_episodes, wanted=wanted))

    async def episode(self, handle: str, principal: str | None = None) -> StoredEpisode:
        """One episode, in its latest run."""
        return await self._read(partial(reading.read_episode, handle=handle, principal=principal))

    async def steps(
        self, handle: str, principal: str | None = None, after: int = 0, limit: int | None = None
    ) -> list[StepRecord]:
        """Calls of an episode's latest run, oldest first."""
        query = partial(reading.read_steps, handle=handle, principal=principal, after=after, limit=limit)
        return await self._read(query)

    async def tools(self, fingerprint: str) -> list[dict[str, Any]] | None:
        """A tool listing by its fingerprint; `None` if no episode with it is stored."""
        return await self._read(partial(reading.read_listing, fingerprint=fingerprint))

    async def periods(self, wanted: EpisodeFilter, seconds: float) -> list[Period]:
        """The episodes that a filter lets through by periods of time, the oldest first."""
        return await self._read(partial(reading.read_periods, wanted=wanted, seconds=seconds))

    async def label_values(self, name: str, principal: str | None = None, limit: int = 100) -> list[str]:
        """The values of a label, that of the newest episode first."""
        return await self._read(partial(reading.read_label_values, name=name, principal=principal, limit=limit))

    async def attach(self, handle: str, kind: str, data: Mapping[str, Any], principal: str | None = None) -> None:
        """Store data with an episode. Data of the same kind is replaced."""
        await self._read(
            partial(_attach, handle=handle, kind=kind, body=json.dumps(data), principal=principal), write=True
        )

    async def attached(self, handle: str, kind: str, principal: str | None = None) -> dict[str, Any] | None:
        """Data that was stored with an episode; `None` if there is none of this kind."""
        return await self._read(partial(_attached, handle=handle, kind=kind, principal=principal))

    @asynccontextmanager
    async def changes(self) -> AsyncGenerator[AsyncIterator[frozenset[str]]]:
        """Watch for changes: yields the handles of episodes of which something was recorded since the last time."""
        async with self._changes.watch() as changed:
            if self._flush is not None:
                # Flush first. Otherwise, what was recorded while nobody watched would be reported late.
                await self._flush()
            # Before the caller goes on, so that it is told of all that is recorded from now on.
            polling = asyncio.create_task(self._poll(await self._others()))
            try:
                yield changed
            finally:
                polling.cancel()
                await asyncio.wait({polling})

    async def _read(self, query: Callable[[Connection], ResultT], *, write: bool = False) -> ResultT:
        if self._flush is not None:
            await self._flush()
        return await self._database.read(query, write=write)

    async def _others(self) -> dict[str, tuple[Any, ...]] | None:
        """What other gateways on the same store have recorded; `None` if the store cannot be read now."""
        try:
            return dict(await self._database.read(partial(_others, own=self._own)))
        except StoreUnavailable:
            # The next lookup reports this error to its caller.
            return None

    async def _poll(self, before: dict[str, tuple[Any, ...]] | None) -> None:
        """Look for what other gateways record."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            now = await self._others()
            if now is None:
                continue
            if before is not None:
                ended = before.keys() - now.keys()
                self._changes.publish(frozenset({h for h, state in now.items() if before.get(h) != state} | ended))
            before = now


def _others(connection: Connection, own: str) -> list[tuple[str, tuple[Any, ...]]]:
    """The live episodes of other gateways, and what they have come to."""
    it = episodes.c
    query = select(it.handle, it.id, it.steps, it.errors).where(it.gateway != own, it.ended_at.is_(None))
    return [(handle, tuple(state)) for handle, *state in connection.execute(query)]


def _attach(connection: Connection, handle: str, kind: str, body: str, principal: str | None) -> None:
    reading.run_of(connection, handle, principal)
    same = (attachments.c.handle == handle, attachments.c.kind == kind)
    connection.execute(delete(attachments).where(*same))
    connection.execute(insert(attachments), {"handle": handle, "kind": kind, "body": body})


def _attached(connection: Connection, handle: str, kind: str, principal: str | None) -> dict[str, Any] | None:
    reading.run_of(connection, handle, principal)
    same = (attachments.c.handle == handle, attachments.c.kind == kind)
    found = connection.execute(select(attachments.c.body).where(*same)).scalar()
    return json.loads(found) if found is not None else None
