"""However the lines of a journal are put into transactions, and however often, the same rows come of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from recorded import opened
from sqlalchemy import select

from envport.episodes import Episodes
from envport.registry import load
from envport.trajectories.database import Database
from envport.trajectories.journal import RESUMING, read_lines
from envport.trajectories.recorder import DatabaseTrajectories
from envport.trajectories.rows import Batch
from envport.trajectories.schema import episodes, openings, resume_points, steps


async def lines_of_an_episode(folder: Path) -> list[bytes]:
    """Its beginning, its calls with a resume point each, and its end, as a gateway writes them."""
    store = DatabaseTrajectories(folder, resumes=True)
    table = Episodes({"counter": load("counter")}, trajectories=store)
    async with table.run():
        episode = await opened(table, run="a")
        for number in range(3):
            await episode.call("count", {}, None, f"call {number}")
        await table.close(episode.handle, "local")
        lines, _ = read_lines(store._journal.path, 0, 0, 2**20, store._journal.end[1])
    return lines


def rows(database: Database) -> dict[str, Any]:
    """All that is told of episodes. When rows were written, and about how large they are, is nobody's business."""
    told = [column for column in episodes.c if column.name not in ("updated_at", "bytes")]
    with database.engine.begin() as connection:
        queries = (select(*told), select(openings), select(steps), select(resume_points))
        return {str(query): [tuple(row) for row in connection.execute(query)] for query in queries}


def write(database: Database, gateway: str, *batches: Sequence[bytes]) -> None:
    for lines in batches:
        batch = Batch(gateway)
        batch.add(lines)
        with database.write() as connection:
            batch.write(connection)


@contextmanager
def opened_database(where: str) -> Iterator[Database]:
    database = Database(where)
    try:
        yield database
    finally:
        with database.write() as connection:
            for table in (episodes, openings, steps, resume_points):
                connection.execute(table.delete())
        database.close()


@pytest.mark.parametrize("gateway", ["plain", f"{RESUMING}one"])
async def test_the_rows_are_those_of_lines_that_are_written_one_by_one(either: str, gateway: str, tmp_path: Path):
    lines = await lines_of_an_episode(tmp_path / "there")
    if gateway == "plain":
        lines = [line for line in lines if not line.startswith(b"r\t")]
    with opened_database(either) as database:
        write(database, gateway, *([line] for line in lines))
        expected = rows(database)
    assert [len(found) for found in expected.values()] == [1, 1, 3, 0]
    for first in range(len(lines) + 1):
        with opened_database(either) as database:
            write(database, gateway, lines[:first], lines[first:])
            assert rows(database) == expected, first
            # As after a crash, when the journal is read from its beginning.
            write(database, gateway, lines)
            assert rows(database) == expected, first
        with opened_database(either) as database:
            write(database, gateway, lines[:first], lines)
            assert rows(database) == expected, first
