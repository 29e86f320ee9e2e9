"""A fault ends the episode that had it, says how, and nothing else."""

import asyncio
import os
import signal
import time
from typing import Any

import anyio
import pytest
import uvloop
from opening import close_episode, open_episode, start_over
from patience import patient
from runtime_environments import SECRET, Everything, Faulty
from runtimes import descendants, descriptors, play, serving
from slow import slow

from envport.episodes import Episode, Episodes
from envport.errors import EpisodeFailed, EpisodeOver, InvalidArguments
from envport.registry import EnvironmentDefinition

FAULTY = EnvironmentDefinition("faulty", Faulty)
NEIGHBOURS = 6

# What a busy machine may add; the bench prints what a quiet one takes.
SLACK = patient(5.0)


async def fails(episode: Episode, tool: str, **arguments: Any) -> float:
    """Seconds until a call has failed."""
    begin = time.perf_counter()
    with pytest.raises(EpisodeFailed):
        await episode.call(tool, arguments)
    return time.perf_counter() - begin


async def open_some(episodes: Episodes, count: int = NEIGHBOURS) -> list[Episode]:
    return list(await asyncio.gather(*(open_episode(episodes, "faulty") for _ in range(count))))


async def one_fails(reason: str, tool: str, limits: dict[str, float] | None = None, **arguments: Any) -> Episode:
    """One of some episodes has a fault; it ends with that reason, and the others go on."""
    async with serving(FAULTY, **(limits or {})) as episodes:
        return await one_of_them_fails(episodes, reason, tool, (limits or {}).get("call_seconds", 0.0), **arguments)


async def one_of_them_fails(
    episodes: Episodes, reason: str, tool: str, deadline: float = 0.0, **arguments: Any
) -> Episode:
    victim, *others = await open_some(episodes)
    counts = [await play(other, "count") for other in others]
    seconds, *answers = await asyncio.gather(
        fails(victim, tool, **arguments), *(play(other, "sleep", seconds=0.1) for other in others)
    )
    assert counts == ["1"] * len(others)
    assert answers == ["slept"] * len(others)
    assert [await play(other, "count") for other in others] == ["2"] * len(others)
    assert victim.outcome is not None
    assert (victim.status, victim.outcome.reason, victim.outcome.fault) == ("failed", reason, "environment")
    assert victim.reward is None
    assert episodes.live == len(others)
    with pytest.raises(EpisodeOver):
        await victim.call("count", {})
    print(f"{tool} {arguments}: known after {1e3 * (seconds - deadline):.1f} ms")
    assert seconds < deadline + SLACK
    for other in others:
        await close_episode(episodes, other)
    return victim


async def test_death_is_known_by_its_cause(caplog: pytest.LogCaptureFixture):
    causes = {"SIGKILL": "SIGKILL", "SIGSEGV": "SIGSEGV", "SIGABRT": "SIGABRT", "exit": "exit code 3"}
    async with serving(FAULTY) as episodes:
        for of, said in causes.items():
            victim = await one_of_them_fails(episodes, "worker_lost", "die", of=of, last_words=SECRET)
            assert victim.outcome is not None
            assert said in victim.outcome.message
            assert SECRET not in victim.outcome.message
            assert SECRET in caplog.text, "the log does not show the last words"
            assert ("Segmentation fault" in caplog.text) == (of == "SIGSEGV")
            caplog.clear()


@pytest.mark.parametrize("tool", ["loop", *slow(["hold_the_gil", "ignore_signals"])])
async def test_a_call_that_never_returns_is_ended_at_its_deadline(tool: str):
    seconds = patient(0.5)
    victim = await one_fails("deadline", tool, {"call_seconds": seconds})
    assert victim.outcome is not None
    assert f"{seconds:g} s" in victim.outcome.message


async def test_memory_beyond_the_limit_ends_the_episode():
    victim = await one_fails("out_of_memory", "eat", {"memory_mb": 128}, megabytes=256)
    assert victim.outcome is not None
    assert "128 MiB" in victim.outcome.message


async def test_memory_below_the_limit_does_not():
    async with serving(FAULTY, memory_mb=128, call_seconds=patient(1.0)) as episodes:
        (episode,) = await open_some(episodes, 1)
        await fails(episode, "eat", megabytes=64)
        assert episode.outcome is not None
        assert episode.outcome.reason == "deadline"


async def test_what_breaks_the_protocol_is_ended():
    async with serving(FAULTY) as episodes:
        for how in ("noise", "length", "list", "reward", "closed", "progress"):
            await one_of_them_fails(episodes, "worker_lost", "spoil", how=how)


async def test_what_goes_on_writing_after_a_death_holds_nobody_up():
    await one_fails("worker_lost", "babble")


async def test_an_answer_that_nobody_asked_for_is_taken_for_none():
    async with serving(FAULTY) as episodes:
        (episode,) = await open_some(episodes, 1)
        # Two answers to one call: the first one counts, the second one ends the episode.
        await episode.call("spoil", {"how": "unasked"})
        with pytest.raises((EpisodeFailed, EpisodeOver)):
            await episode.call("count", {})
        assert episode.outcome is not None
        assert episode.outcome.reason == "worker_lost"


@pytest.mark.parametrize("own_session", [False, True])
async def test_what_an_episode_leaves_behind_goes_with_it(own_session: bool):
    async with serving(FAULTY) as episodes:
        victim, other = await open_some(episodes, 2)
        orphan = int(await play(victim, "orphan", own_session=own_session))
        kept = int(await play(other, "orphan", own_session=own_session))
        # The orphan has a copy of every descriptor, so that no end of file tells of the death.
        seconds = await fails(victim, "die", of="exit")
        print(f"with an orphan: known after {1e3 * seconds:.1f} ms")
        assert seconds < SLACK
        await ended(orphan)
        assert kept in [pid for pid, _ in descendants(os.getpid())], "the orphan of a living episode was killed"
        assert await play(other, "count") == "1"
    await ended(kept)


def parent(pid: int) -> int:
    """The parent of a process."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


async def ended(pid: int) -> None:
    """Wait for the end of a process that is no child of this one."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        over = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(pidfd, lambda: over.done() or over.set_result(None))
        await asyncio.wait_for(over, patient(30))
    finally:
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)


async def test_an_episode_that_dies_between_two_calls_ends_by_itself():
    async with serving(FAULTY) as episodes:
        victim, other = await open_some(episodes, 2)
        assert await play(victim, "count") == "1"
        pid = int(victim.first_observation.text)
        os.kill(pid, signal.SIGSEGV)
        await ended(pid)
        with pytest.raises((EpisodeFailed, EpisodeOver)):
            await victim.call("count", {})
        assert victim.outcome is not None
        assert (victim.outcome.reason, victim.reward) == ("worker_lost", None)
        assert "SIGSEGV" in victim.outcome.message
        assert await play(other, "count") == "1"
        await start_over(episodes, victim)
        assert await play(victim, "count") == "1", "it can be started over"


@pytest.mark.parametrize("at_reset", ["exit", "hang"])
async def test_a_fault_while_opening_ends_the_episode(at_reset: str):
    spec = EnvironmentDefinition("faulty", Faulty, {"at_reset": at_reset})
    # A hang takes as long as the limit; an exit has to be seen before it.
    limit = patient(10.0 if at_reset == "exit" else 3.0)
    async with serving(spec, reset_seconds=limit) as episodes:
        with pytest.raises(EpisodeFailed, match="exit code 7" if at_reset == "exit" else f"limit of {limit:g} s"):
            await open_episode(episodes, "faulty")
        assert episodes.live == 0


async def test_an_observation_beyond_the_limit_of_a_message_fails_its_episode():
    async with serving(EnvironmentDefinition("everything", Everything), runtime="process") as episodes:
        episode = await open_episode(episodes, "everything")
        await fails(episode, "fill", characters=65 * 2**20)
        assert episode.outcome is not None
        assert episode.outcome.reason == "environment_error"


async def test_arguments_that_are_nested_too_deeply_are_refused():
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    async with serving(EnvironmentDefinition("everything", Everything), runtime="process") as episodes:
        episode = await open_episode(episodes, "everything")
        with pytest.raises(InvalidArguments, match="too deeply"):
            await episode.call("nest", {"value": value})
        assert await play(episode, "say", text="alive") == "alive"


async def test_closing_waits_for_the_call_that_is_running():
    async with serving(FAULTY) as episodes:
        (episode,) = await open_some(episodes, 1)
        running = asyncio.create_task(play(episode, "sleep", seconds=0.3))
        await asyncio.sleep(0)
        await close_episode(episodes, episode)
        assert await running == "slept"
    assert episode.status == "closed"


async def test_one_in_twenty_killed_costs_no_other_and_no_reward_is_zero():
    async with serving(FAULTY) as episodes:
        all_of_them = await open_some(episodes, 40)
        killed = all_of_them[::20]

        async def roll_out(episode: Episode) -> None:
            for _ in range(3):
                await episode.call("count", {})
            if episode in killed:
                await fails(episode, "die", of="SIGKILL")

        await asyncio.gather(*map(roll_out, all_of_them))
        rewards = [episode.info().reward for episode in all_of_them]
    assert rewards.count(None) == len(killed) == 2
    assert rewards.count(3.0) == 38


async def test_the_loss_of_the_zygote_ends_its_episodes_and_the_next_one_has_another():
    async with serving(FAULTY) as episodes:
        some = await open_some(episodes, 3)
        os.kill(parent(int(some[0].first_observation.text)), signal.SIGKILL)
        for episode in some:
            with pytest.raises((EpisodeFailed, EpisodeOver)):
                await episode.call("sleep", {"seconds": 5.0})
            assert episode.outcome is not None
            assert episode.outcome.reason == "worker_lost"
        again = await open_episode(episodes, "faulty")
        assert await play(again, "count") == "1"


async def test_a_zygote_that_was_stopped_is_replaced(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr("envport.runtimes.fork_server._FORK_SECONDS", patient(0.5))
    async with serving(FAULTY) as episodes:
        (some,) = await open_some(episodes, 1)
        stopped = parent(int(some.first_observation.text))
        os.kill(stopped, signal.SIGSTOP)
        with anyio.fail_after(patient(10)):
            for failure in await asyncio.gather(*(open_some(episodes, 1) for _ in range(10)), return_exceptions=True):
                assert isinstance(failure, EpisodeFailed)
                assert "was lost" in str(failure)
            again = await open_episode(episodes, "faulty")
        assert parent(int(again.first_observation.text)) != stopped
        assert await play(again, "count") == "1"
        with pytest.raises((EpisodeFailed, EpisodeOver)):
            await some.call("count", {})
        assert some.outcome is not None
        assert some.outcome.reason == "worker_lost"
    assert "environment faulty: the process from which its episodes' processes are made did not answer" in caplog.text
    assert descendants(os.getpid()) == []


@pytest.mark.slow
async def test_nothing_is_left_of_many_episodes():
    async with serving(FAULTY, call_seconds=patient(0.5)) as episodes:
        (kept,) = await open_some(episodes, 1)
        await play(kept, "count")
        before = descriptors()
        for _ in range(3):
            some = await open_some(episodes, 12)
            await asyncio.gather(
                *(
                    fails(episode, "die", of=of)
                    for episode, of in zip(some, ("SIGKILL", "exit", "SIGSEGV"), strict=False)
                ),
                *(fails(episode, "loop") for episode in some[3:5]),
                *(play(episode, "orphan") for episode in some[5:8]),
                *(play(episode, "count") for episode in some[8:]),
            )
            for episode in some:
                await close_episode(episodes, episode)
                await episode.release()
        assert descriptors() == before
        # What was left behind dies after those who left it; the zygote buries it before it forks again.
        first, zygote = int(kept.first_observation.text), parent(int(kept.first_observation.text))
        await asyncio.gather(*(ended(pid) for pid, _ in descendants(os.getpid()) if pid not in (first, zygote)))
        (last,) = await open_some(episodes, 1)
        below = {pid for pid, _ in descendants(os.getpid())}
        assert below == {zygote, first, int(last.first_observation.text)}
    assert descendants(os.getpid()) == []


@pytest.mark.slow
def test_the_same_under_uvloop():
    async def main() -> None:
        await one_fails("worker_lost", "die", of="SIGSEGV")
        await one_fails("deadline", "hold_the_gil", {"call_seconds": patient(0.5)})
        await one_fails("worker_lost", "spoil", how="noise")
        async with serving(EnvironmentDefinition("everything", Everything), runtime="process") as episodes:
            episode = await open_episode(episodes, "everything")
            text = "ü" * 2_000_000
            assert await play(episode, "say", text=text) == text
            assert len(await play(episode, "fill", characters=5_000_000)) == 5_000_000

    uvloop.run(asyncio.sleep(0))
    before = descriptors()
    uvloop.run(main())
    assert descriptors() == before


async def test_episodes_draw_different_numbers_where_they_do_not_seed():
    async with serving(FAULTY) as episodes:
        some = await open_some(episodes)
        assert len({await play(episode, "random_numbers") for episode in some}) == len(some)
