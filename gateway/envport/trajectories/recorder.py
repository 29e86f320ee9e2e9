"""The store that keeps every episode, in a database with a journal in front."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from sqlalchemy.exc import SQLAlchemyError

from envport.errors import ConfigurationError, StoreUnavailable, UnknownEpisode
from envport.trajectories.archive import Archive, StoredEpisode
from envport.trajectories.changes import Changes
from envport.trajectories.database import Database, said
from envport.trajectories.database_archive import DatabaseArchive
from envport.trajectories.drainer import Drainer
from envport.trajectories.journal import RESUMING, Journal
from envport.trajectories.keys import RunKeys, claimed_name
from envport.trajectories.lines import call_line, ended_line, opened_line, point_line
from envport.trajectories.pruning import prune
from envport.trajectories.reading import read_left, read_point
from envport.trajectories.recovery import lose_silent, recover
from envport.trajectories.retention import Retention
from envport.trajectories.store import EpisodeSnapshot, EpisodeState, ResumePoint, Totals
from envport.types import Observation, StepRecord

__all__ = ["DatabaseTrajectories", "open_archive"]

logger = logging.getLogger(__name__)

_FLUSH_SECONDS = 30.0
# A database that is restarted is back within a minute.
_COMMIT_SECONDS = 90.0
_KEEPING_SECONDS = 60.0
_JOURNALS = "journals"


class DatabaseTrajectories:
    """Keeps every episode: a call is in the journal before it is answered, and in the database soon after.

    Args:
        where: A folder for SQLite, or the URL of a PostgreSQL database.
        journals: Folder of the journals. If not given, it is in the folder of the SQLite database.
        in_database: Whether a call is answered only when it is in the database, so that not even the loss of this
            machine loses it. Otherwise when it is in the journal, which outlives the process.
        retention: How long episodes are kept.
        resumes: Whether episodes that are live when this process ends are to go on after a restart.

    Attributes:
        at_once: Whether a call is recorded without waiting for anything.
        resumes: Whether resume points are recorded.
        archive: Looks up what was recorded.
        where: The store, for people to read. It contains no password.

    Raises:
        ConfigurationError: The store cannot be opened, or a newer version of envport wrote it.
    """

    def __init__(
        self,
        where: str | Path,
        *,
        journals: Path | None = None,
        in_database: bool = False,
        retention: Retention | None = None,
        resumes: bool = False,
    ):
        self.resumes = resumes
        self._left_live = False
        self._database = Database(where)
        self.where: str | None = self._database.shown
        self.at_once = not in_database
        self._retention = retention or Retention()
        self._journals = _journals_of(self._database, journals)
        self._changes = Changes()
        try:
            self._journal = Journal(self._journals, claimed_name(self._database, RESUMING if resumes else ""))
        except OSError as error:
            self._database.close()
            raise ConfigurationError(f"{self._journals} cannot hold journals: {error.strerror}") from None
        self._drainer = Drainer(self._journal, str(self._database.folder or where), self._changes, at_once=in_database)
        self._archive = DatabaseArchive(self._database, self._flush, self._journal.name, self._changes)
        self.archive: Archive | None = self._archive
        self._keys: dict[str, int] = {}
        self._known_listings: set[str] = set()
        self._run_keys = RunKeys(self._journal.name)
        self._left: dict[int, StoredEpisode] = {}

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Take over what gateways that are gone have left behind, and write to the database in the background."""
        await anyio.to_thread.run_sync(self._recover)
        if self.resumes:
            self._left = await self._database.read(partial(read_left, gateway=self._journal.name))
            self._keys.update({one.info.episode_id: key for key, one in self._left.items()})
            self._run_keys.stay_above(max(self._left, default=0))
        self._drainer.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_house)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    written = await self._drainer.stop()
                    if not written:
                        logger.error("the database did not take everything; the rest is in %s", self._journal.path)
                    await anyio.to_thread.run_sync(self._close, written)

    def check(self) -> None:
        """Check that a call could be recorded now."""
        self._journal.check()

    async def begin(
        self,
        episode_id: str,
        first_observation: Observation,
        snapshot: Callable[[], EpisodeSnapshot],
        point: ResumePoint | None = None,
    ) -> None:
        """Start the recording of an episode, or of another run of it after a reset."""
        self._begin(episode_id, snapshot(), point)
        self._drainer.wake()
        if not self.at_once:
            await self._committed()

    async def append(
        self, episode_id: str, record: StepRecord, totals: Totals, point: ResumePoint | None = None
    ) -> None:
        """Record a call."""
        key = self._keys[episode_id]
        line = call_line(key, record, totals)
        # In one piece: a call that is recorded without its id would be played again.
        self._journal.write(line + point_line(key, point) if point is not None else line)
        self._drainer.wake()
        if not self.at_once:
            await self._committed()

    async def left(self) -> Sequence[StoredEpisode]:
        """The live episodes of gateways that are gone, which are to be resumed here."""
        return list(self._left.values())

    async def resume_point(self, episode_id: str) -> ResumePoint | None:
        """The latest resume point of an episode."""
        return await self._database.read(partial(read_point, key=self._keys[episode_id]))

    def leave(self) -> None:
        """Leave the episodes that have not ended to the next gateway."""
        self._left_live = True

    def end(self, episode_id: str, state: EpisodeState, snapshot: Callable[[], EpisodeSnapshot]) -> None:
        """Record how an episode ended. Also for one that could not begin."""
        try:
            if episode_id not in self._keys:
                self._begin(episode_id, snapshot())
            self._journal.write(ended_line(self._keys[episode_id], state))
        except StoreUnavailable as error:
            logger.error("the end of episode %s could not be recorded: %s", episode_id, error)
        self._drainer.wake()

    async def read(self, episode_id: str) -> tuple[Observation, Sequence[StepRecord], int]:
        """The first observation and the calls, oldest first. None are ever dropped."""
        try:
            first = (await self._archive.episode(episode_id)).first_observation
            return first, await self._archive.steps(episode_id), 0
        except UnknownEpisode:
            return Observation(), [], 0

    def forget(self, episode_id: str) -> None:
        """Free the memory that is held for an episode, which is played no more."""
        self._keys.pop(episode_id, None)

    def _close(self, written: bool) -> None:
        # The next gateway finds the episodes by the journal.
        self._journal.close(delete=written and not self._left_live)
        self._database.close()

    def _begin(self, episode_id: str, snapshot: EpisodeSnapshot, point: ResumePoint | None = None) -> None:
        key = self._run_keys.new()
        fingerprint = snapshot.fingerprint
        line = opened_line(key, snapshot, with_tools=fingerprint not in self._known_listings)
        self._journal.write(line + point_line(key, point) if point is not None else line)
        self._known_listings.add(fingerprint)
        self._keys[episode_id] = key

    async def _committed(self) -> None:
        await self._drainer.flush(_COMMIT_SECONDS, retry=True)

    async def _flush(self) -> None:
        await self._drainer.flush(_FLUSH_SECONDS)

    def _recover(self) -> None:
        try:
            recover(self._database, self._journals, starting=self._journal.name)
        except SQLAlchemyError as error:
            logger.error("what earlier gateways left in %s cannot be read back now: %s", self._journals, said(error))

    async def _keep_house(self) -> None:
        """Take over from gateways that are gone, and delete what is too old, now and then."""
        while True:
            await anyio.sleep(_KEEPING_SECONDS)
            await anyio.to_thread.run_sync(self._keep)

    def _keep(self) -> None:
        try:
            recover(self._database, self._journals)
            lose_silent(self._database)
            prune(self._database, self._retention)
        except SQLAlchemyError as error:
            logger.warning("the trajectory store cannot be tidied up now: %s", said(error))


def open_archive(where: str | Path) -> DatabaseArchive:
    """Open a trajectory store to look up what is in it. Gateways may be writing to it.

    Args:
        where: A folder, or the URL of a PostgreSQL database.

    Raises:
        ConfigurationError: There is no trajectory store, or it cannot be opened.
    """
    database = Database(where, readonly=True)
    try:
        recover(database, _journals_of(database, None))
    except (SQLAlchemyError, OSError) as error:
        logger.warning("what a gateway that is gone left in its journal cannot be read back: %s", said(error))
    return DatabaseArchive(database)


def _journals_of(database: Database, journals: Path | None) -> Path:
    if journals is not None:
        return journals
    if database.folder is not None:
        return database.folder / _JOURNALS
    # Of one user, on this machine: what is not in the database yet is there for the next gateway.
    return Path.home() / ".local" / "state" / "envport" / _JOURNALS / database.identity
