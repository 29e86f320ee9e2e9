"""What gateways that are gone have left behind: journals that are not in the database, and episodes without an end."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, bindparam, select, update

from envport.trajectories.database import Database
from envport.trajectories.drain import drain_abandoned
from envport.trajectories.journal import abandoned
from envport.trajectories.reading import live_of
from envport.trajectories.schema import episodes, gateways, openings
from envport.types import Outcome

__all__ = ["LOST", "lose_silent", "recover"]

logger = logging.getLogger(__name__)

LOST = Outcome(
    status="failed",
    reason="shutdown",
    message="Its gateway was stopped, or the machine was, before the episode had ended.",
    fault="infrastructure",
)
"""The outcome of an episode whose gateway is gone."""

# A gateway says every ten seconds that it runs.
SILENT_SECONDS = 90.0


def recover(database: Database, journals: Path, keep: Callable[[str], bool] = lambda handle: False) -> list[str]:
    """Drain the journals of gateways that are gone, and end the episodes that were lost with them.

    Args:
        database: The database.
        journals: The folder of the journals.
        keep: Whether an episode of this handle is to be resumed, and so is not ended.

    Returns:
        The handles of the live episodes that were kept.

    Raises:
        SQLAlchemyError: The database is away.
    """
    kept: list[str] = []
    for journal in abandoned(journals):
        try:
            drain_abandoned(journal, database)
            with database.write() as connection:
                kept += _lose(connection, live_of(journal.name), keep)
            journal.delete()
        finally:
            journal.release()
    return kept


def lose_silent(database: Database) -> None:
    """End the episodes of gateways that have not said for a while that they run, such as those of a lost machine.

    Raises:
        SQLAlchemyError: The database is away.
    """
    with database.write() as connection:
        silent = select(gateways.c.name).where(gateways.c.seen_at < time.time() - SILENT_SECONDS)
        _lose(connection, episodes.c.gateway.in_(silent) & episodes.c.ended_at.is_(None))


def _lose(
    connection: Connection, which: ColumnElement[bool], keep: Callable[[str], bool] = lambda handle: False
) -> list[str]:
    live: Sequence[tuple[int, str]] = (
        connection.execute(select(episodes.c.id, episodes.c.handle).where(which)).tuples().all()
    )
    lost = [key for key, handle in live if not keep(handle)]
    if lost:
        logger.warning("%d episodes were lost with their gateway", len(lost))
        connection.execute(
            update(episodes)
            .where(episodes.c.id == bindparam("key"))
            .values(
                status=LOST.status,
                reason=LOST.reason,
                fault=LOST.fault,
                lost=True,
                reward=None,
                ended_at=episodes.c.updated_at,
            ),
            [{"key": key} for key in lost],
        )
        said = json.dumps(LOST.model_dump(mode="json"))
        connection.execute(
            update(openings).where(openings.c.episode == bindparam("key")).values(outcome=said),
            [{"key": key} for key in lost],
        )
    return [handle for _, handle in live if keep(handle)]
