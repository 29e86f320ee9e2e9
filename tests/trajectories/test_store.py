"""Every episode is recorded whole, in SQLite and in PostgreSQL alike."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from documents import block
from patience import patient
from recorded import opened, played, table_on
from sqlalchemy import create_engine, func, inspect, select, text, update

from envport import trajectories
from envport.episodes import OpenRequest
from envport.errors import ConfigurationError, InvalidArguments, InvalidRequest, UnknownEpisode
from envport.trajectories import EpisodeFilter, read_recorded
from envport.trajectories.database import Database
from envport.trajectories.recorder import DatabaseTrajectories, open_archive
from envport.trajectories.schema import blobs, metadata, steps
from envport.types import Choice


async def test_an_episode_is_stored_whole(either: str) -> None:
    """What the table tells of it while it remembers it is what the store tells afterwards."""
    async with table_on(either) as (table, archive):
        request = OpenRequest("showcase", "ann", Choice("tour", 1, 5), labels={"run": "a", "group": "7"})
        episode = await table.open_episode(request)
        await episode.call("show_image", {"colour": "red"})
        with pytest.raises(InvalidArguments):
            await episode.call("choose", {"size": "none of them"})
        await episode.call("show_mixed", {})
        await episode.call("finish", {})
        told = await table.trajectory(episode.handle, "ann")
        tools = await archive.tools(told.fingerprint)
        assert tools == episode.start.tools.listing
    with open_archive(either) as archive:
        stored = (await read_recorded(archive, episode.handle, "ann")).trajectory
        about = await archive.episode(episode.handle)
    unknown = {"expires_in": None}
    assert stored.episode == told.episode.model_copy(update=unknown)
    assert stored == told.model_copy(update={"episode": stored.episode})
    assert [step.tool for step in stored.steps] == ["show_image", "choose", "show_mixed", "finish"]
    assert (about.principal, about.prompt) == ("ann", episode.prompt)


async def test_the_page_s_program(tmp_path: Path) -> None:
    async with table_on(tmp_path) as (table, _):
        episode = await opened(table, "catch", seed=5)
        while episode.status == "running":
            await episode.call("move", {"direction": "stay"})
        await opened(table, "catch")
    program: dict[str, Any] = {}
    exec(block("gateway/envport/trajectories/README.md", "from envport.trajectories import EpisodeFilter"), program)
    # The other one was lost with its table.
    assert await program["rewards"](tmp_path) == [1.0]


async def test_nobody_else_finds_it(where: str) -> None:
    async with table_on(where) as (table, archive):
        handle = await played(table, "count")
        with pytest.raises(UnknownEpisode):
            await archive.episode(handle, "bob")
        with pytest.raises(UnknownEpisode):
            await archive.steps(handle, "bob")
        with pytest.raises(UnknownEpisode):
            await archive.attach(handle, "rollout", {}, "bob")
        with pytest.raises(UnknownEpisode):
            await archive.episode("ep_never_was")
        assert (await archive.find(EpisodeFilter(principal="bob"))).episodes == []


async def test_values_of_a_label_are_those_of_a_principal(where: str) -> None:
    async with table_on(where) as (table, archive):
        for principal, run in (("ann", "first"), ("bob", "theirs"), ("ann", "second"), ("ann", "first")):
            await opened(table, principal=principal, run=run)
        assert await archive.label_values("run", "ann") == ["first", "second"]
        assert await archive.label_values("run", "bob") == ["theirs"]
        assert await archive.label_values("run", "eve") == []
        assert await archive.label_values("run", limit=2) == ["first", "second"]
        assert await archive.label_values("group") == []


async def test_filters(where: str) -> None:
    async with table_on(where) as (table, archive):
        first = await played(table, "count", run="a", sample="1")
        second = await played(table, "count", "count", run="a", sample="2")
        lost = await opened(table, run="b")
        lost.end("failed", "upstream", "It is gone.", fault="infrastructure")
        await lost.release()
        live = await opened(table, "catch", run="b")

        async def found(**wanted: object) -> list[str]:
            page = await archive.find(EpisodeFilter(**wanted))  # type: ignore[arg-type]
            assert await archive.count(EpisodeFilter(**wanted)) == len(page.episodes)  # type: ignore[arg-type]
            return [one.info.episode_id for one in page.episodes]

        everything = [live.handle, lost.handle, second, first]
        assert await found() == everything
        assert await found(environment="catch") == await found(live=True) == [live.handle]
        assert await found(live=False) == everything[1:]
        assert await found(status="closed") == await found(reason="closed") == [second, first]
        assert await found(fault="infrastructure") == await found(lost=True) == [lost.handle]
        assert await found(labels={"run": "a"}) == [second, first]
        assert await found(labels={"run": "a", "sample": "1"}) == [first]
        assert await found(labels={"run": "c"}) == []
        at = (await archive.episode(second)).info.created_at
        assert await found(since=at) == everything[:3]
        assert await found(until=at) == [first]
        assert await archive.label_values("run") == ["b", "a"]
        assert await archive.label_values("run", "bob") == []


async def test_filters_by_reward(where: str) -> None:
    async with table_on(where) as (table, archive):
        handles: dict[float | None, str] = {}
        for seed in (4, 5, 6):
            episode = await opened(table, "catch", seed=seed)
            while episode.status == "running":
                await episode.call("move", {"direction": "stay"})
            handles[episode.reward] = episode.handle
        live = await opened(table, "catch")
        assert len(handles) == 2, handles
        for reward, handle in handles.items():
            page = await archive.find(EpisodeFilter(min_reward=reward, max_reward=reward))
            assert handle in {one.info.episode_id for one in page.episodes}
            assert {one.info.reward for one in page.episodes} == {reward}
        assert live.handle not in {
            one.info.episode_id for one in (await archive.find(EpisodeFilter(min_reward=-9))).episodes
        }
        (period,) = await archive.periods(EpisodeFilter(), 10.0**9)
        assert (period.episodes, period.outcomes) == (4, {"terminated": 3})
        assert period.reward == sum(await _rewards(archive.find)) / 3


async def _rewards(find: object) -> list[float]:
    page = await find(EpisodeFilter(min_reward=-9))  # type: ignore[operator]
    return [one.info.reward for one in page.episodes]


async def test_a_store_is_its_owners_alone(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    async with table_on(tmp_path) as (table, archive):
        await played(table, "count")
        await archive.count(EpisodeFilter())
        assert _open_to_others(tmp_path) == []


def _open_to_others(folder: Path) -> list[Path]:
    """The files of a folder that other users can read."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert {"episodes.db", "episodes.db-wal", "00000000.journal"} <= {path.name for path in found}
    ways = {path: [path, *path.relative_to(folder).parents] for path in found}
    return [path for path, way in ways.items() if all((folder / it).stat().st_mode & 0o077 for it in way)]


async def test_pages(where: str) -> None:
    async with table_on(where) as (table, archive):
        handles = [await played(table) for _ in range(7)]
        found: list[str] = []
        after: str | None = None
        while True:
            page = await archive.find(EpisodeFilter(), 3, after)
            found += [one.info.episode_id for one in page.episodes]
            after = page.next
            if after is None:
                break
        assert found == handles[::-1]


async def test_a_reset_begins_another_run(where: str) -> None:
    async with table_on(where) as (table, archive):
        episode = await opened(table)
        await episode.call("count", {})
        await table.reset(table.find(episode.handle, "local"), Choice(seed=9))
        await episode.call("count", {})
        await episode.call("count", {})
        stored = await archive.episode(episode.handle)
        assert (stored.info.seed, stored.info.resets, stored.info.steps) == (9, 1, 2)
        assert [step.observation.text for step in await archive.steps(episode.handle)] == ["1", "2"]
        assert await archive.count(EpisodeFilter()) == 1


async def test_one_that_could_not_begin_is_stored_too(where: str) -> None:
    async with table_on(where, "support") as (table, archive):
        with pytest.raises(InvalidRequest):
            await table.open_episode(OpenRequest("support", "local", Choice(task={"id": "none of mine"})))
        (stored,) = (await archive.find(EpisodeFilter())).episodes
        assert stored.info.outcome is not None
        assert (stored.info.status, stored.info.outcome.reason, stored.info.steps) == ("failed", "refused", 0)


async def test_images_are_stored_once(either: str) -> None:
    async with table_on(either) as (table, archive):
        handles = [await played(table, "show_image", "show_image", environment="showcase") for _ in range(2)]
        seen = [step.observation for handle in handles for step in await archive.steps(handle)]
        assert len(seen) == 4
        assert all(block["data"] for observation in seen for block in observation.content if block["type"] == "image")
        assert seen[0] == seen[3]
    with closing_database(either) as database, database.engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(blobs)).scalar() == 1
        assert not any("iVBOR" in body for (body,) in connection.execute(select(steps.c.body)))


async def test_long_trajectories_are_read_in_parts(where: str) -> None:
    async with table_on(where) as (table, archive):
        episode = await opened(table)
        for _ in range(2_500):
            await episode.call("count", {})
        part = await archive.steps(episode.handle, after=2_000, limit=10)
        assert [step.index for step in part] == list(range(2_001, 2_011))
        assert len(await archive.steps(episode.handle)) == 2_500
        _, records, dropped = await table.trajectories.read(episode.handle)
        assert (len(records), dropped) == (2_500, 0)


async def test_texts_that_databases_do_not_like(either: str) -> None:
    async with table_on(either, "echo") as (table, archive):
        said = "\0 \ud800 ' -- \t\r\n 漢字 🎉 envport/blob"
        request = OpenRequest("echo", "a'b", labels={"run": "it's"})
        episode = await table.open_episode(request)
        await episode.call("echo", {"message": said})
        (step,) = await archive.steps(episode.handle)
        assert step.arguments == {"message": said.replace("\ud800", "\N{REPLACEMENT CHARACTER}")}
        assert (await archive.find(EpisodeFilter(principal="a'b", labels={"run": "it's"}))).episodes


async def test_what_is_attached(either: str) -> None:
    async with table_on(either) as (table, archive):
        handle = await played(table, "count")
        assert await archive.attached(handle, "rollout") is None
        await archive.attach(handle, "rollout", {"ids": [1, 2]})
        await archive.attach(handle, "rollout", {"ids": [3]}, "local")
        assert await archive.attached(handle, "rollout") == {"ids": [3]}


async def test_watching(where: str) -> None:
    """Who watches is told of what happens here, and of what another gateway on the same store records."""
    async with table_on(where) as (table, _), table_on(where) as (other, archive):
        here, there = await opened(other), await opened(table)
        await archive.count(EpisodeFilter())
        async with archive.changes() as changed:
            for episode, expected in ((here, "1"), (there, "1"), (here, "2"), (there, "2")):
                await episode.call("count", {})
                seen: list[str] = []
                while expected not in seen:
                    if episode.handle in await anext(changed):
                        seen = [step.observation.text for step in await archive.steps(episode.handle)]


async def test_what_happens_once_somebody_watches_is_told_of(either: str) -> None:
    """However late the store is first read."""
    recorded, over = threading.Event(), threading.Event()

    async def another_gateway() -> None:
        async with table_on(either) as (table, other):
            handles.append((await opened(table)).handle)
            await other.count(EpisodeFilter())
            recorded.set()
            await asyncio.to_thread(over.wait)

    handles: list[str] = []
    async with table_on(either) as (_, archive):
        thread = threading.Thread(target=lambda: asyncio.run(another_gateway()))
        try:
            async with archive.changes() as changed, asyncio.timeout(patient(30)):
                thread.start()
                # Nothing of this event loop runs meanwhile.
                recorded.wait()
                assert await anext(changed) == {*handles}
        finally:
            over.set()
            thread.join()


async def test_two_gateways_on_one_store(where: str) -> None:
    async with table_on(where) as (one, archive), table_on(where) as (two, _):
        handles: set[str] = set()
        for _ in range(5):
            handles |= {await played(one, "count"), await played(two, "count")}
        # What the other one has recorded comes within moments.
        while await archive.count(EpisodeFilter(live=False)) < 10:
            pass
        assert {found.info.episode_id for found in (await archive.find(EpisodeFilter())).episodes} == handles


async def test_a_row_that_cannot_be_read(where: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is named, and the rest is there."""
    async with table_on(where) as (table, _):
        handle, whole = await played(table, "count", "count", "count"), await played(table, "count")
    with closing_database(where) as database, database.write() as connection:
        connection.execute(update(steps).where(steps.c.index == 2).values(body='{"index": 2, "tool'))
    with open_archive(where) as archive:
        found = await archive.steps(handle)
        assert [step.error for step in found] == [None, "unreadable", None]
        assert f"call 2 of the episode {handle} cannot be read" in caplog.text
        assert len(await archive.steps(whole)) == 1
    with closing_database(where) as database, database.write() as connection:
        connection.execute(text("UPDATE openings SET body = '{' WHERE episode = (SELECT min(id) FROM episodes)"))
    with open_archive(where) as archive:
        (left,) = (await archive.find(EpisodeFilter())).episodes
    assert left.info.episode_id == whole
    assert f"the episode {handle} cannot be read" in caplog.text


async def test_a_store_of_a_newer_version(where: str) -> None:
    async with table_on(where):
        pass
    with closing_database(where) as database, database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for opens in (DatabaseTrajectories, open_archive):
        with pytest.raises(ConfigurationError, match=r"written by a newer version of envport.*update envport"):
            opens(where)


def test_migrations_make_the_same_tables(either: str) -> None:
    """A new store is made at once, and an old one by migrations."""
    database = Database(either)
    with closing_database(either), database.write() as connection:
        metadata.drop_all(connection)
        connection.execute(text("DROP TABLE alembic_version"))
    with database.write() as connection:
        config = Config()
        folder = Path(trajectories.__file__).parent / "migrations"
        config.set_main_option("script_location", str(folder))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        assert "alembic_version" in inspect(connection).get_table_names()
    database.close()
    with closing(Database(either)) as again:
        assert again.is_sqlite == ("://" not in either)


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("mysql://host/name", "a folder or a postgresql:// URL, and no mysql:// URL"),
        ("postgresql://nobody:secret-word@127.0.0.1:1/none", "cannot be opened: .*refused"),
        ("/dev/null/store", "cannot hold a trajectory store: Not a directory"),
    ],
)
def test_a_store_that_cannot_be(place: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refused:
        DatabaseTrajectories(place)
    assert "secret-word" not in str(refused.value)


def test_there_is_no_store_to_look_at(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no trajectory store in .*: it has no file episodes.db"):
        open_archive(tmp_path)
    assert list(tmp_path.iterdir()) == []
    create_engine(f"sqlite:///{tmp_path}/episodes.db").connect().close()
    (tmp_path / "episodes.db").write_bytes(b"SQLite is something else" * 100)
    with pytest.raises(ConfigurationError, match=r"cannot be opened: file is not a database"):
        open_archive(tmp_path)


def closing_database(where: str) -> closing[Database]:
    """The database of a store, to look into it."""
    return closing(Database(where))
