"""Filling the database from journals: from this gateway's all the time, and from those of gateways that are gone."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from envport.errors import StoreUnavailable
from envport.trajectories.database import Database, said
from envport.trajectories.journal import AbandonedJournal, Journal, Position, read_lines, segments
from envport.trajectories.rows import Batch, mark_seen

__all__ = ["Drain", "drain_abandoned"]

logger = logging.getLogger(__name__)

# Waiting a little makes larger groups, which cost less for each call.
_GROUP_SECONDS = 0.05
_BATCH_BYTES = 4 * 2**20
_HEARTBEAT_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_SILENCE_SECONDS = 60.0


class Drain:
    """Writes the lines of a journal to the database, in a thread of its own.

    If the database is away, it tries again until it is back. Nothing is lost in the meantime: it is in the journal.

    Args:
        journal: The journal of this gateway.
        open_database: Opens the database. Called in the thread.
        changed: Called in the thread with the handles that something was written of.
        at_once: Whether to write as soon as there is something, because callers wait for it.
    """

    def __init__(
        self,
        journal: Journal,
        open_database: Callable[[], Database],
        changed: Callable[[frozenset[str]], None],
        *,
        at_once: bool = False,
    ):
        self._journal = journal
        self._open_database = open_database
        self._changed = changed
        self._at_once = at_once
        self._database: Database | None = None
        self._committed: Position = (0, 0)
        self._work = threading.Event()
        self._hurry = threading.Event()
        self._stopping = False
        self._waiting: list[tuple[Position, asyncio.Future[None]]] = []
        self._lock = threading.Lock()
        self._handles: dict[int, str] = {}
        self._trouble: str | None = None
        self._told_at = self._next_beat = float("-inf")
        self._thread = threading.Thread(target=self._run, name="envport-store", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something in the journal."""
        if not self._work.is_set():
            self._work.set()

    async def flush(self, seconds: float) -> None:
        """Wait until everything that is in the journal now is in the database.

        Args:
            seconds: How long to wait.

        Raises:
            StoreUnavailable: The database did not take it in time.
        """
        target = self._journal.end
        if self._committed >= target:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._committed >= target:
                return
            self._waiting.append((target, done))
        self._work.set()
        self._hurry.set()
        try:
            async with asyncio.timeout(seconds):
                await done
        except TimeoutError:
            why = self._trouble or f"it has not answered for {seconds:g} s"
            raise StoreUnavailable(f"The trajectory store cannot be written to now: {why}") from None

    def stop(self, seconds: float) -> bool:
        """Write what is left, and end the thread.

        Args:
            seconds: How long to wait.

        Returns:
            Whether everything is in the database.
        """
        self._stopping = True
        self._work.set()
        self._hurry.set()
        self._thread.join(seconds)
        return not self._thread.is_alive() and self._committed >= self._journal.end

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            self._work.wait(_HEARTBEAT_SECONDS)
            if not (self._at_once or self._stopping):
                self._hurry.wait(_GROUP_SECONDS)
            self._work.clear()
            self._hurry.clear()
            try:
                self._drain()
            except Exception as error:
                self._note(error)
                if self._stopping:
                    break
                self._hurry.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                self._work.set()
                continue
            pause, self._trouble = _FIRST_PAUSE, None
            if self._stopping:
                break
        if self._database is not None:
            self._database.close()

    def _drain(self) -> None:
        if self._database is None:
            self._database = self._open_database()
        if (now := time.monotonic()) >= self._next_beat:
            with self._database.write() as connection:
                mark_seen(connection, self._journal.name)
            self._next_beat = now + _HEARTBEAT_SECONDS
        while True:
            number, offset = self._committed
            # Read before the lines, so that a segment that is complete has no lines after those.
            last, _ = self._journal.end
            lines, after = read_lines(self._journal.path, number, offset, _BATCH_BYTES)
            if lines:
                self._write(lines)
                self._reached((number, after))
            elif number < last:
                self._reached((number + 1, 0))
                self._journal.delete_before(number + 1)
            else:
                return

    def _write(self, lines: list[bytes]) -> None:
        assert self._database is not None
        for batch in write_lines(self._database, self._journal.name, lines):
            self._handles.update(batch.opened)
            self._changed(frozenset(self._handles[key] for key in batch.touched if key in self._handles))
            for key in batch.ended:
                self._handles.pop(key, None)

    def _reached(self, position: Position) -> None:
        with self._lock:
            self._committed = position
            waiting, self._waiting = self._waiting, []
            for target, done in waiting:
                if target <= position:
                    # The loop of a caller that has left may be closed.
                    with suppress(RuntimeError):
                        done.get_loop().call_soon_threadsafe(_settle, done)
                else:
                    self._waiting.append((target, done))

    def _note(self, error: Exception) -> None:
        self._trouble = said(error)
        now = time.monotonic()
        if now - self._told_at >= _SILENCE_SECONDS:
            self._told_at = now
            known = isinstance(error, SQLAlchemyError | OSError)
            logger.error(
                "the trajectory store cannot be written to: %s; episodes go on, and what happens is kept in %s until "
                "it can",
                self._trouble,
                self._journal.path,
                exc_info=None if known else error,
            )


def drain_abandoned(journal: AbandonedJournal, database: Database) -> None:
    """Write everything that is in the journal of a gateway that is gone to the database, and delete the journal.

    Args:
        journal: The journal.
        database: The database.

    Raises:
        SQLAlchemyError: The database does not take it. The journal is left as it is.
    """
    for segment in segments(journal.path):
        _drain_segment(journal, int(segment.stem), database)
    journal.delete()


def _drain_segment(journal: AbandonedJournal, number: int, database: Database) -> None:
    offset = 0
    while True:
        lines, offset = read_lines(journal.path, number, offset, _BATCH_BYTES)
        if not lines:
            return
        write_lines(database, journal.name, lines)


def write_lines(database: Database, gateway: str, lines: list[bytes]) -> list[Batch]:
    """Write lines of a journal to the database. A line that it does not take is logged and left out.

    Args:
        database: The database.
        gateway: Name of the journal.
        lines: The lines.

    Returns:
        What was written.

    Raises:
        SQLAlchemyError: The database is away.
    """
    batch = Batch(gateway)
    batch.add(lines)
    try:
        with database.write() as connection:
            batch.write(connection)
    except (DataError, IntegrityError) as error:
        if len(lines) == 1:
            logger.error("the trajectory store does not take a line of %s, which is left out: %s", gateway, said(error))
            return []
        half = len(lines) // 2
        return [*write_lines(database, gateway, lines[:half]), *write_lines(database, gateway, lines[half:])]
    return [batch]


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
