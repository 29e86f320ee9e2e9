"""No two runs of episodes share a key, whichever gateways record them at the same moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import count
from pathlib import Path

import pytest
from recorded import opened, table_on
from sqlalchemy import select, text

from envport.trajectories import EpisodeFilter
from envport.trajectories.database import Database
from envport.trajectories.keys import RunKeys, claimed_name
from envport.trajectories.recorder import open_archive
from envport.trajectories.schema import gateways
from envport.types import Choice

_EACH = 2_000


@contextmanager
def clock_at(moment: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: moment)
        yield


async def test_gateways_that_record_in_the_same_millisecond_keep_all_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        tables = [(await stack.enter_async_context(table_on(tmp_path, "counter")))[0] for _ in range(2)]
        with clock_at(time.time(), monkeypatch):
            for _ in range(_EACH):
                for table in tables:
                    await table.close((await opened(table)).handle, "local")
    with open_archive(tmp_path) as archive:
        assert await archive.count(EpisodeFilter(principal="local")) == 2 * _EACH


async def test_a_reset_after_a_restart_is_the_latest_run_though_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clock_at(time.time() + 3600, monkeypatch):
        async with table_on(tmp_path, "counter", resumes=True) as (table, _):
            episode = await opened(table, seed=1)
    async with table_on(tmp_path, "counter", resumes=True) as (table, archive):
        await table.reset(table.find(episode.handle, "local"), Choice(seed=2))
        assert (await archive.episode(episode.handle)).info.seed == 2


def test_a_gateway_draws_again_if_another_has_its_number(either: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(either)
    try:
        with clock_at(time.time(), monkeypatch):
            taken = RunKeys(claimed_name(database)).new()
            twin = next(name for name in map(str, count()) if RunKeys(name).new() == taken)
            drawn = iter([twin, "another"])
            assert claimed_name(database, draw=lambda _: next(drawn)) == "another"
            with database.write() as connection:
                assert twin not in connection.execute(select(gateways.c.name)).scalars().all()
    finally:
        database.close()


def test_a_gateway_starts_although_its_number_cannot_be_claimed(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    database = Database(tmp_path)
    try:
        with database.write() as connection:
            connection.execute(text("DROP TABLE gateways"))
        assert claimed_name(database, "here-", draw=lambda _: "drawn") == "here-drawn"
    finally:
        database.close()
    assert "no such table: gateways" in caplog.text


def test_gateways_on_a_database_have_keys_of_their_own(either: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(either)
    try:
        with clock_at(time.time(), monkeypatch):
            keys = [RunKeys(claimed_name(database)) for _ in range(2)]
            made = [one.new() for _ in range(1_000) for one in keys]
    finally:
        database.close()
    assert len(set(made)) == len(made)
    assert made[::2] == sorted(made[::2])
    assert max(made).bit_length() <= 63
