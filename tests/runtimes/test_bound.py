"""An async environment has a task of its own, and one that is bound to a thread has a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest
from bound_environments import Bound, HangsSoon, Scoped
from opening import close_episode, open_episode, start_over
from patience import patient
from runtimes import KINDS, serving

from envport import Environment
from envport.environment import RuntimeKind
from envport.episodes import Episode
from envport.errors import EpisodeFailed, InvalidEnvironment
from envport.registry import EnvironmentDefinition
from envport.runtimes import kind_for

SCOPED = EnvironmentDefinition("scoped", Scoped)
HANGS_SOON = EnvironmentDefinition("hangs_soon", HangsSoon)
BOUND = EnvironmentDefinition("bound", Bound)
LOCAL = ("inline", "thread")


async def ended(episode: Episode) -> None:
    deadline = time.monotonic() + patient(30)
    while episode.live:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_task_group_is_entered_in_reset_and_left_in_close(
    kind: RuntimeKind, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
):
    async with serving(SCOPED, runtime=kind) as episodes:
        episode = await open_episode(episodes, "scoped")
        for _ in range(3):
            # Each in a task of its own, as requests are.
            result = await asyncio.create_task(episode.call("ask", {}))
            assert result.observation.text == "answered; set in reset; same task: True"
        if kind != "thread":
            plain = await asyncio.create_task(episode.call("plain", {}))
            assert plain.observation.text == "plain; set in reset; same task: True"
        await asyncio.create_task(start_over(episodes, episode))
        assert (await episode.call("ask", {})).observation.text.startswith("answered")
        await close_episode(episodes, episode)
        await episode.release()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    if kind != "process":
        assert capfd.readouterr().out == "left in order\n" * 2


@pytest.mark.parametrize("kind", LOCAL)
@pytest.mark.parametrize("stubbornly", [False, True])
async def test_a_call_past_its_deadline_ends_the_episode_however_it_takes_it(kind: RuntimeKind, stubbornly: bool):
    async with serving(HANGS_SOON, runtime=kind) as episodes:
        episode = await open_episode(episodes, "hangs_soon")
        with pytest.raises(EpisodeFailed, match=r"longer than its limit of 0\.2 s"):
            await episode.call("hang", {"stubbornly": stubbornly})
        assert episode.outcome is not None
        assert episode.outcome.reason == "deadline"
        again = await open_episode(episodes, "hangs_soon")
        assert (await again.call("ask", {})).observation.text.startswith("answered")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_failure_in_the_background_ends_the_episode_between_calls(
    kind: RuntimeKind, caplog: pytest.LogCaptureFixture
):
    async with serving(SCOPED, runtime=kind) as episodes:
        episode = await open_episode(episodes, "scoped")
        await episode.call("fail_behind", {})
        await ended(episode)
        assert episode.outcome is not None
        assert (episode.outcome.reason, episode.outcome.infrastructure) == ("worker_lost", True)
        assert episode.reward is None
        await episode.release()
        again = await open_episode(episodes, "scoped")
        assert (await again.call("ask", {})).observation.text.startswith("answered")
    if kind != "process":
        assert "the background broke" in caplog.text


async def test_a_client_that_leaves_while_it_opens_leaves_no_task_behind():
    class Slow(Scoped):
        async def reset(self, *, seed: int, task: object) -> str:
            entered.set()
            await asyncio.sleep(3600)
            return ""

    entered = asyncio.Event()
    before = len(asyncio.all_tasks())
    async with serving(EnvironmentDefinition("slow", Slow)) as episodes:
        opening = asyncio.create_task(open_episode(episodes, "slow"))
        await entered.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before


@pytest.mark.parametrize("kind", ["thread", "process"])
async def test_a_bound_environment_stays_in_its_thread(kind: RuntimeKind, capfd: pytest.CaptureFixture[str]):
    async with serving(BOUND, runtime=kind) as episodes:
        one, two = [await open_episode(episodes, "bound") for _ in range(2)]
        assert one.first_observation.text == "True"
        for number in range(1, 20):
            said = await asyncio.gather(*(episode.call("say", {"words": "x"}) for episode in (one, two)))
            assert {result.observation.text for result in said} == {f"{number} True"}
        threads = [(await episode.call("thread", {})).observation.text for episode in (one, two)]
        if kind == "thread":
            assert len(set(threads)) == 2
            await close_episode(episodes, one)
            await one.release()
            assert "closed in its thread: True" in capfd.readouterr().out
    names = [thread for thread in threading.enumerate() if thread.name == "envport bound"]
    for thread in names:
        thread.join(patient(30))
        assert not thread.is_alive()


async def test_the_thread_of_what_cannot_be_made_ends():
    class Unmade(Bound):
        broken = False

        def __init__(self) -> None:
            if self.broken:
                raise RuntimeError("nothing to see")

    async with serving(EnvironmentDefinition("unmade", Unmade), runtime="thread") as episodes:
        Unmade.broken = True
        with pytest.raises(EpisodeFailed):
            await open_episode(episodes, "unmade")
    for thread in [thread for thread in threading.enumerate() if thread.name == "envport unmade"]:
        thread.join(patient(5))
        assert not thread.is_alive()


def test_a_bound_environment_is_never_run_in_the_event_loop():
    assert kind_for(BOUND, "inline") == "thread"
    assert kind_for(BOUND, "process") == "process"
    with pytest.raises(InvalidEnvironment, match="own_thread needs runtime = 'thread'"):
        type("Wrong", (Environment,), {"own_thread": True})
