"""Deleting old episodes, so that a store does not grow for ever."""

from __future__ import annotations

import time

from sqlalchemy import Connection, delete, exists, func, select

from envport.trajectories.database import Database
from envport.trajectories.retention import Retention
from envport.trajectories.schema import (
    attachments,
    blobs,
    episode_blobs,
    episodes,
    gateways,
    labels,
    openings,
    resume_points,
    steps,
)

__all__ = ["prune"]

# Small transactions: a gateway that writes to the same file waits for each.
_AT_ONCE = 200
_GATEWAY_SECONDS = 7 * 86_400.0


def prune(database: Database, retention: Retention) -> int:
    """Delete episodes that are too old, and the oldest ones as long as there is too much.

    Args:
        database: The database.
        retention: What is kept.

    Returns:
        How many runs of episodes were deleted.

    Raises:
        SQLAlchemyError: The database is away.
    """
    deleted = 0
    while True:
        with database.write() as connection:
            keys = _outdated(connection, retention)
            _delete(connection, keys)
        deleted += len(keys)
        if not keys:
            break
    if deleted:
        with database.write() as connection:
            connection.execute(delete(gateways).where(gateways.c.seen_at < time.time() - _GATEWAY_SECONDS))
        if database.is_sqlite:
            _give_back(database)
    return deleted


def _outdated(connection: Connection, retention: Retention) -> list[int]:
    it = episodes.c
    ended = select(it.id).where(it.ended_at.is_not(None)).order_by(it.id).limit(_AT_ONCE)
    if retention.days is not None:
        old = connection.execute(ended.where(it.ended_at < time.time() - 86_400 * retention.days)).scalars().all()
        if old:
            return list(old)
    if retention.gib is None:
        return []
    allowed = int(retention.gib * 2**30)
    calls, images = (
        connection.execute(select(func.coalesce(func.sum(column), 0))).scalar_one()
        for column in (it.bytes, blobs.c.bytes)
    )
    too_many = int(calls) + int(images) - allowed
    if too_many <= 0:
        return []
    found: list[int] = []
    sizes = select(it.id, it.bytes).where(it.ended_at.is_not(None)).order_by(it.id).limit(_AT_ONCE)
    for key, size in connection.execute(sizes):
        found.append(key)
        too_many -= size
        if too_many <= 0:
            break
    return found


def _delete(connection: Connection, keys: list[int]) -> None:
    if not keys:
        return
    handles = select(episodes.c.handle).where(episodes.c.id.in_(keys), episodes.c.latest)
    connection.execute(delete(attachments).where(attachments.c.handle.in_(handles)))
    for table in (steps, openings, labels, resume_points):
        connection.execute(delete(table).where(table.c.episode.in_(keys)))
    digests = connection.execute(select(episode_blobs.c.digest).where(episode_blobs.c.episode.in_(keys)).distinct())
    gone = list(digests.scalars())
    connection.execute(delete(episode_blobs).where(episode_blobs.c.episode.in_(keys)))
    connection.execute(delete(episodes).where(episodes.c.id.in_(keys)))
    for first in range(0, len(gone), _AT_ONCE):
        connection.execute(
            delete(blobs).where(
                blobs.c.digest.in_(gone[first : first + _AT_ONCE]),
                ~exists().where(episode_blobs.c.digest == blobs.c.digest),
            )
        )


def _give_back(database: Database) -> None:
    """Give the room in an SQLite file that is not used any more back to the disk."""
    connection = database.engine.raw_connection()
    try:
        # Each step of the statement frees a page. Only a script is stepped to its end.
        connection.cursor().executescript("PRAGMA incremental_vacuum")
    finally:
        connection.close()
