"""Disks that are full, databases that are away, and observations that are large: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import logging
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import patient
from postgresql import Server
from recorded import opened, played, table_on
from sqlalchemy import func, select, update
from users import PYTHONPATH

from envport.errors import EpisodeFailed, StoreUnavailable
from envport.trajectories import EpisodeFilter, Retention
from envport.trajectories.database import Database
from envport.trajectories.pruning import prune
from envport.trajectories.recorder import open_archive
from envport.trajectories.schema import attachments, blobs, episode_blobs, episodes, labels, openings, steps


def test_a_full_disk(tmp_path: Path) -> None:
    program = "import asyncio, full_disk, sys; asyncio.run(full_disk.fill_up(sys.argv[1]))"
    python = shlex.join([sys.executable, "-c", program, str(tmp_path)])
    mount = shlex.join(["mount", "-t", "tmpfs", "-o", "size=40m", "none", str(tmp_path)])
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-ec", f"{mount}; exec {python}"],
        env={"PYTHONPATH": PYTHONPATH, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    if "Operation not permitted" in done.stderr:
        pytest.skip("no mount namespace can be made here")
    assert done.returncode == 0, done.stderr[-3_000:]


async def test_postgresql_is_away_for_a_while(
    postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Episodes go on, reading is refused with the cause, and everything is there when it is back."""
    monkeypatch.setenv("HOME", str(tmp_path))
    where = postgresql.database()
    async with table_on(where) as (table, archive):
        before = await played(table, "count")
        assert await archive.count(EpisodeFilter()) == 1
        postgresql.stop()
        try:
            during = await played(table, "count", "count")
            with pytest.raises(StoreUnavailable, match="cannot be written to now: "):
                await archive.steps(during)
        finally:
            postgresql.start()
        after = await played(table, "count", "count", "count")
        async with asyncio.timeout(patient(30)):
            while True:
                try:
                    found = [len(await archive.steps(handle)) for handle in (before, during, after)]
                    break
                except StoreUnavailable:
                    continue
        assert found == [1, 2, 3]
    (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "episodes go on" in told.getMessage()
    assert "a-password-of-the-tests" not in caplog.text


async def test_watching_goes_on_when_postgresql_is_back(
    postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    where = postgresql.database()
    async with table_on(where) as (table, there):
        episode = await opened(table)
        await there.count(EpisodeFilter())
        with open_archive(where) as archive:
            async with archive.changes() as changed, asyncio.timeout(patient(60)):
                await episode.call("count", {})
                await there.count(EpisodeFilter())
                assert await anext(changed) == {episode.handle}
                postgresql.stop()
                postgresql.start()
                await episode.call("count", {})
                assert await anext(changed) == {episode.handle}
                assert len(await archive.steps(episode.handle)) == 2


@pytest.mark.slow
async def test_calls_that_wait_for_the_database(
    postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that may be lost, a call is answered only when the database has it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    where = postgresql.database()
    async with table_on(where, in_database=True) as (table, _):
        episode = await opened(table)
        with open_archive(where) as elsewhere:
            for number in range(1, 4):
                await episode.call("count", {})
                assert len(await elsewhere.steps(episode.handle)) == number
        # One that it does not get in time is no call that was recorded.
        monkeypatch.setattr("envport.trajectories.recorder._COMMIT_SECONDS", 0.2)
        postgresql.stop()
        try:
            with pytest.raises(EpisodeFailed) as failed:
                await episode.call("count", {})
        finally:
            postgresql.start()
        assert (failed.value.fault, failed.value.reason) == ("infrastructure", "store")


@pytest.mark.slow
async def test_a_large_observation(tmp_path: Path) -> None:
    async with table_on(tmp_path) as (table, archive):
        episode = await opened(table, "echo")
        sizes = [5 * 2**20, 20 * 2**20, 10]
        for size in sizes:
            await episode.call("echo", {"message": "x" * size})
        assert [len(step.observation.text) for step in await archive.steps(episode.handle)] == sizes


async def test_old_episodes_are_deleted(either: str) -> None:
    async with table_on(either) as (table, archive):
        old, new = [await played(table, "show_image", environment="showcase", run="a") for _ in range(2)]
        other = await played(table, "show_mixed", environment="showcase", run="a")
        live = await opened(table)
        await archive.attach(old, "rollout", {})
        await archive.count(EpisodeFilter())
        database = Database(either)
        with database.write() as connection:
            week_ago = time.time() - 7 * 86_400
            connection.execute(update(episodes).where(episodes.c.handle.in_([old, other])).values(ended_at=week_ago))
        assert prune(database, Retention(days=8)) == 0
        assert prune(database, Retention(days=6)) == 2
        assert {one.info.episode_id for one in (await archive.find(EpisodeFilter())).episodes} == {new, live.handle}
        (step,) = await archive.steps(new)
        assert step.observation.content[0]["data"]
        with database.engine.connect() as connection:
            left = {
                table.name: connection.execute(select(func.count()).select_from(table)).scalar()
                for table in (episodes, openings, labels, steps, blobs, episode_blobs, attachments)
            }
        assert left == {
            "episodes": 2, "openings": 2, "labels": 1, "steps": 1, "blobs": 1, "episode_blobs": 1, "attachments": 0
        }  # fmt: skip
        database.close()


async def test_the_oldest_episodes_make_room(tmp_path: Path) -> None:
    async with table_on(tmp_path) as (table, archive):
        handles: list[str] = []
        for _ in range(10):
            episode = await opened(table, "echo")
            await episode.call("echo", {"message": "x" * 100_000})
            await table.close(episode.handle, "local")
            handles.append(episode.handle)
        await archive.count(EpisodeFilter())
        database = Database(tmp_path)
        assert prune(database, Retention(gib=1)) == 0
        assert prune(database, Retention(gib=500_000 / 2**30)) == 8
        kept = [one.info.episode_id for one in (await archive.find(EpisodeFilter())).episodes]
        assert kept == handles[:-3:-1]
        with database.engine.connect() as connection:
            # What was deleted is given back to the disk.
            assert connection.exec_driver_sql("PRAGMA freelist_count").scalar() == 0
        database.close()
