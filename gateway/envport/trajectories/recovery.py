"""What gateways that are gone have left behind: journals that are not in the database, and episodes without an end."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, and_, bindparam, or_, select, update

from envport.trajectories.database import Database
from envport.trajectories.drain import drain_abandoned
from envport.trajectories.journal import RESUMING, abandoned
from envport.trajectories.reading import live_of
from envport.trajectories.schema import episodes, gateways, openings
from envport.types import Outcome

__all__ = ["LOST", "RESUME_SECONDS", "lose_silent", "recover"]

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

RESUME_SECONDS = 3600.0
"""How long episodes that are to be resumed are left alone, until their gateway is started again."""


def recover(database: Database, journals: Path, starting: str | None = None) -> None:
    """Drain the journals of gateways that are gone, and end the episodes that were lost with them.

    A gateway that starts takes over the episodes that are to be resumed, if it resumes episodes. If it does not, it
    ends them. While no gateway starts, they are left alone for `RESUME_SECONDS`.

    Args:
        database: The database.
        journals: The folder of the journals.
        starting: Name of the gateway that is starting; `None` if none is.

    Raises:
        SQLAlchemyError: The database is away.
    """
    for journal in abandoned(journals):
        try:
            to_resume = journal.name.startswith(RESUMING)
            left_alone = to_resume and starting is None and journal.age < RESUME_SECONDS
            drain_abandoned(journal, database)
            if left_alone:
                continue
            with database.write() as connection:
                if to_resume and starting is not None and starting.startswith(RESUMING):
                    # In one transaction: an episode always belongs to a gateway that answers for it.
                    connection.execute(update(episodes).where(live_of(journal.name)).values(gateway=starting))
                else:
                    _lose(connection, live_of(journal.name))
            journal.delete()
        finally:
            journal.release()


def lose_silent(database: Database) -> None:
    """End the episodes of gateways that have not said for a while that they run, such as those of a lost machine.

    Raises:
        SQLAlchemyError: The database is away.
    """
    with database.write() as connection:
        now, it = time.time(), gateways.c
        to_resume = it.name.startswith(RESUMING)
        silent = select(it.name).where(
            or_(
                and_(it.seen_at < now - SILENT_SECONDS, ~to_resume),
                it.seen_at < now - RESUME_SECONDS,
            )
        )
        _lose(connection, episodes.c.gateway.in_(silent) & episodes.c.ended_at.is_(None))


def _lose(connection: Connection, which: ColumnElement[bool]) -> None:
    lost: Sequence[int] = connection.execute(select(episodes.c.id).where(which)).scalars().all()
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
