"""Filling the database from journals."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import DataError, IntegrityError

from envport.trajectories.database import Database, said
from envport.trajectories.journal import AbandonedJournal, Position, delete_before, read_lines, segments
from envport.trajectories.rows import Batch, mark_seen
from envport.trajectories.schema import episodes

__all__ = ["HEARTBEAT_SECONDS", "Drain", "drain_abandoned"]

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0
"""How often a gateway says in the database that it runs."""

_BATCH_BYTES = 4 * 2**20


class Drain:
    """Writes the lines of a journal to the database.

    Args:
        journal: Folder of the journal.
        database: The database.
        at: Where to begin.

    Attributes:
        at: Everything before this is in the database.
    """

    def __init__(self, journal: Path, database: Database, at: Position = (0, 0)):
        self.at = at
        self._journal = journal
        self._database = database
        self._handles: dict[int, str] = {}
        self._next_beat = float("-inf")

    def up_to(self, end: Position | None, wrote: Callable[[Position, list[str]], None]) -> None:
        """Write the lines up to a position.

        Args:
            end: The position; `None` for everything, if nobody writes to the journal any more.
            wrote: Called after each transaction, with the position that was reached and the handles of the episodes.

        Raises:
            SQLAlchemyError: The database cannot be reached. `at` says how far the lines were written.
            FileNotFoundError: Another gateway has drained the journal and deleted it.
        """
        self.beat()
        last = end[0] if end is not None else int(segments(self._journal)[-1].stem)
        while True:
            number, offset = self.at
            bound = end[1] if end is not None and number == last else None
            lines, after = read_lines(self._journal, number, offset, _BATCH_BYTES, bound)
            if lines:
                handles = self._write(lines)
                self.at = (number, after)
                wrote(self.at, handles)
            elif number < last:
                self.at = (number + 1, 0)
                delete_before(self._journal, number + 1)
            else:
                return

    def beat(self) -> None:
        """Note in the database that the gateway runs, if that is due."""
        if (now := time.monotonic()) >= self._next_beat:
            with self._database.write() as connection:
                mark_seen(connection, self._journal.name)
            self._next_beat = now + HEARTBEAT_SECONDS

    def _opened_before(self, keys: set[int]) -> dict[int, str]:
        query = select(episodes.c.id, episodes.c.handle).where(episodes.c.id.in_(keys))
        with self._database.engine.begin() as connection:
            return {row.id: row.handle for row in connection.execute(query)}

    def _write(self, lines: list[bytes]) -> list[str]:
        touched: set[str] = set()
        for batch in _write_lines(self._database, self._journal.name, lines):
            self._handles.update(batch.opened)
            if unknown := batch.touched - self._handles.keys():
                # Opened by an earlier gateway, or before this process took the place of a lost one.
                self._handles.update(self._opened_before(unknown))
            touched.update(self._handles[key] for key in batch.touched if key in self._handles)
            for key in batch.ended:
                self._handles.pop(key, None)
        return sorted(touched)


def drain_abandoned(journal: AbandonedJournal, database: Database) -> None:
    """Write everything that is in the journal of a gateway that is gone to the database.

    Args:
        journal: The journal.
        database: The database.

    Raises:
        SQLAlchemyError: The database does not take it. The journal is left as it is.
    """
    found = segments(journal.path)
    if found:
        Drain(journal.path, database, (int(found[0].stem), 0)).up_to(None, lambda _at, _handles: None)


def _write_lines(database: Database, gateway: str, lines: list[bytes]) -> list[Batch]:
    """Write lines to the database. One that it does not take is logged and left out."""
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
        return [*_write_lines(database, gateway, lines[:half]), *_write_lines(database, gateway, lines[half:])]
    return [batch]
