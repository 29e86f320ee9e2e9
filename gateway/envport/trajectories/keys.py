"""Keys of the runs of episodes: by time, and no two the same, although gateways share a store."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from zlib import crc32

from sqlalchemy import Connection, delete, select
from sqlalchemy.exc import SQLAlchemyError

from envport.trajectories.database import Database, said
from envport.trajectories.rows import mark_seen
from envport.trajectories.schema import gateways

__all__ = ["RunKeys", "claimed_name"]

logger = logging.getLogger(__name__)

# A key has 63 bits: the time, and below it the number of its gateway. So a gateway can make 16,000 keys a second before
# they run ahead of the clock.
_NUMBER_BITS = 17
_TICKS = 16_000
_NAME_BYTES = 8
# Of 131,072 numbers, few are taken.
_ATTEMPTS = 20


class RunKeys:
    """Makes the keys of one gateway. Each is higher than the one before.

    Args:
        gateway: Name of the gateway, which says its number.
    """

    def __init__(self, gateway: str):
        self._number = _number_of(gateway)
        self._tick = 0

    def new(self) -> int:
        """A key that no other run has."""
        self._tick = max(int(time.time() * _TICKS), self._tick + 1)
        return self._tick << _NUMBER_BITS | self._number

    def stay_above(self, key: int) -> None:
        """Make only keys that are higher than this one, even if the clock was set back."""
        self._tick = max(self._tick, key >> _NUMBER_BITS)


def claimed_name(database: Database, prefix: str = "", draw: Callable[[int], str] = secrets.token_hex) -> str:
    """A name for a gateway that starts, whose number no other gateway on this database has.

    If the database cannot be written to now, the name is drawn all the same, and a warning says so.

    Args:
        database: The database.
        prefix: How the name begins.
        draw: Draws random bytes, and returns them in hex.
    """
    name, why = "", "all that were drawn are taken"
    for _ in range(_ATTEMPTS):
        name = f"{prefix}{draw(_NAME_BYTES)}"
        try:
            # Two transactions: of two gateways that start at once, at least one sees the other.
            with database.write() as connection:
                mark_seen(connection, name)
            with database.write() as connection:
                if _number_of(name) not in _others(connection, name):
                    return name
                connection.execute(delete(gateways).where(gateways.c.name == name))
        except SQLAlchemyError as error:
            why = said(error)
            break
    # Of a hundred others, one has the same number once in 1,300 starts.
    logger.warning("it is not known whether another gateway on this store has the same number: %s", why)
    return name


def _others(connection: Connection, name: str) -> set[int]:
    names = connection.execute(select(gateways.c.name).where(gateways.c.name != name)).scalars()
    return {_number_of(other) for other in names}


def _number_of(gateway: str) -> int:
    return crc32(gateway.encode()) % 2**_NUMBER_BITS
