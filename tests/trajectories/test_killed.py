"""What a client was told of is in the store, whatever is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Served, player, text
from patience import patient
from recorded import opened, played, table_on
from slow import slow

from envport import AsyncClient
from envport.errors import UnknownEpisode
from envport.trajectories import EpisodeFilter
from envport.trajectories.recorder import open_archive

_EPISODES = 20


def _children(pid: int) -> list[int]:
    """The processes that a gateway has started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def _drain_process() -> int:
    """The process that fills the database of a table in this process."""
    children = _children(os.getpid())
    (pid,) = (it for it in children if b"drain_process" in Path(f"/proc/{it}/cmdline").read_bytes())
    return pid


@pytest.fixture(params=[*slow(["the gateway"]), "all of its processes"])
def kill(request: pytest.FixtureRequest) -> Callable[[Served], None]:
    """Kills a gateway, or all of its processes at once, so that none can finish what it was doing."""

    def killed(served: Served) -> None:
        pids = [served.process.pid]
        if request.param == "all of its processes":
            pids += _children(served.process.pid)
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        served.process.wait()

    return killed


async def _play_until_lost(url: str, handle: str, told: list[str], enough: asyncio.Event) -> None:
    async with player(f"{url}/episodes/{handle}/mcp") as client:
        while True:
            told.append(text(await client.call_tool("count", {})))
            if len(told) == 5:
                enough.set()


async def test_what_was_acknowledged_is_there_after_sigkill(tmp_path: Path, kill: Callable[[Served], None]) -> None:
    told: dict[str, list[str]] = {}
    with Served("counter", "--store", str(tmp_path)) as served:
        async with AsyncClient(served.url) as client:
            for _ in range(_EPISODES):
                told[(await client.open("counter")).episode_id] = []
        enough = [asyncio.Event() for _ in told]
        playing = [
            asyncio.create_task(_play_until_lost(served.url, handle, seen, event))
            for (handle, seen), event in zip(told.items(), enough, strict=True)
        ]
        async with asyncio.timeout(patient(60)):
            for event in enough:
                await event.wait()
        await asyncio.to_thread(kill, served)
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)
    with open_archive(tmp_path) as archive:
        for handle, seen in told.items():
            stored = [step.observation.text for step in await archive.steps(handle)]
            # The last one may have been recorded, and its answer not have arrived.
            assert stored[: len(seen)] == seen
            assert len(stored) <= len(seen) + 1
            info = (await archive.episode(handle)).info
            assert info.outcome is not None
            assert (info.status, info.outcome.reason, info.outcome.fault) == ("failed", "shutdown", "infrastructure")
            assert (info.steps, info.reward) == (len(stored), None)
        assert await archive.count(EpisodeFilter(lost=True)) == _EPISODES
    assert not list((tmp_path / "journals").iterdir())


async def test_the_next_gateway_tells_of_the_episodes_of_the_one_before(tmp_path: Path) -> None:
    words = ("counter", "--store", str(tmp_path))
    with Served(*words, ENVPORT_TOKEN="a-token-of-the-tests-0123456789") as served:
        async with AsyncClient(served.url, token="a-token-of-the-tests-0123456789") as client:
            episode = await client.open("counter", labels={"run": "a"})
            closed = await client.open("counter")
            await client.close_episode(closed.episode_id)
        served.process.kill()
        served.process.wait()
    with Served(*words) as served:
        async with AsyncClient(served.url) as client:
            # Without tokens, everybody is another principal than the one who opened them.
            with pytest.raises(UnknownEpisode):
                await client.episode(episode.episode_id)
            assert await client.episodes() == []
    with Served(*words, ENVPORT_TOKEN="a-token-of-the-tests-0123456789") as served:
        async with AsyncClient(served.url, token="a-token-of-the-tests-0123456789") as client:
            assert (await client.episode(episode.episode_id)).status == "failed"
            assert (await client.episode(closed.episode_id)).status == "closed"
            assert (await client.trajectory(closed.episode_id)).first_observation.text == "The counter is at 0."
            newest_first = [info.episode_id for info in await client.episodes()]
            assert newest_first == [closed.episode_id, episode.episode_id]
            assert [info.episode_id for info in await client.episodes(labels={"run": "a"})] == [episode.episode_id]


async def test_the_process_that_fills_the_database_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with table_on(tmp_path) as (table, archive):
        first = await played(table, "count")
        await archive.count(EpisodeFilter())
        os.kill(_drain_process(), signal.SIGKILL)
        second = await played(table, "count", "count")
        async with asyncio.timeout(patient(20)):
            while await archive.count(EpisodeFilter(live=False)) < 2:
                pass
        assert [len(await archive.steps(handle)) for handle in (first, second)] == [1, 2]
    assert "another one is started" in caplog.text


async def test_a_journal_that_ends_in_the_middle_of_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A power failure may leave anything. What can be read of it is kept."""
    async with table_on(tmp_path) as (table, archive):
        handle = (await opened(table)).handle
        for _ in range(3):
            await (table.episode(handle, "local")).call("count", {})
        await archive.count(EpisodeFilter())
        (journal,) = (tmp_path / "journals").iterdir()
        (segment,) = journal.iterdir()
        lines = segment.read_bytes().split(b"\0")[0]
    left = tmp_path / "other" / "journals" / journal.name
    left.mkdir(parents=True)
    torn = lines.splitlines(keepends=True)
    torn[2] = b"s\tnonsense\n"
    (left / segment.name).write_bytes(b"".join(torn)[:-40] + bytes(4096))
    async with table_on(tmp_path / "other"):
        pass
    with open_archive(tmp_path / "other") as archive:
        assert [step.index for step in await archive.steps(handle)] == [1]
        assert (await archive.episode(handle)).info.status == "failed"
    assert "cannot be read and is left out" in caplog.text
