"""The final state is scored once, at every end that is no fault; what breaks then is a fault and never a zero."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from anyio.lowlevel import checkpoint
from opening import close_episode, open_episode, start_over
from runtimes import KINDS, play, serving
from scored_environments import LET_GO, Judged, JudgedByLast, SlowlyJudged, Unjudged

from envport import Environment, ToolError, tool
from envport.clock import ManualClock
from envport.environment import RuntimeKind
from envport.episodes import Episode, Episodes
from envport.errors import ConfigurationError, EnvironmentNotFound, EpisodeFailed, EpisodeOver, InvalidEnvironment
from envport.registry import EnvironmentDefinition, load
from envport.scoring import Scorer
from envport.types import EpisodeInfo

JUDGED = EnvironmentDefinition("judged", Judged)
BY_LAST = EnvironmentDefinition("by-last", JudgedByLast)
SLOWLY = EnvironmentDefinition("slowly", SlowlyJudged)


@pytest.fixture(autouse=True)
def no_gates() -> Iterator[None]:
    SlowlyJudged.asked = 0
    SlowlyJudged.gates.clear()
    LET_GO.clear()
    yield
    LET_GO.set()


async def finished(table: Episodes, episode: Episode) -> EpisodeInfo:
    return await table.finish(episode.handle, episode.principal)


async def asked(times: int = 1) -> None:
    """Wait until the score was asked for so often."""
    while SlowlyJudged.asked < times:
        await checkpoint()


async def gone(table: Episodes) -> None:
    """Wait until every episode is over and has let go of its environment."""
    while table.live:
        await checkpoint()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_score_is_the_last_reward(kind: RuntimeKind):
    async with serving(JUDGED, BY_LAST, runtime=kind) as table:
        infos = []
        for name in ("judged", "by-last"):
            episode = await open_episode(table, name)
            await play(episode, "count")
            await play(episode, "count")
            infos.append(await finished(table, episode))
    for info, reward in zip(infos, (22.0, 20.0), strict=True):
        assert (info.status, info.outcome and info.outcome.reason) == ("truncated", "finished")
        assert (info.reward, info.score, info.rewards, info.steps) == (reward, 20.0, [1.0, 1.0, 20.0], 2)


async def by_itself(table: Episodes, episode: Episode, clock: ManualClock) -> None:
    await episode.call("stop", {"how": "terminated"})


async def cut_off(table: Episodes, episode: Episode, clock: ManualClock) -> None:
    await episode.call("stop", {"how": "truncated"})


async def at_its_step_limit(table: Episodes, episode: Episode, clock: ManualClock) -> None:
    for _ in range(3):
        await episode.call("count", {})


async def at_its_time_limit(table: Episodes, episode: Episode, clock: ManualClock) -> None:
    await clock.advance(60)


async def by_its_owner(table: Episodes, episode: Episode, clock: ManualClock) -> None:
    await close_episode(table, episode)


async def idle(table: Episodes, episode: Episode, clock: ManualClock) -> None:
    await clock.advance(30)


@pytest.mark.parametrize(
    ("end", "status", "reason", "reward"),
    [
        (by_itself, "terminated", "terminated", 11),
        (cut_off, "truncated", "truncated", 11),
        (at_its_step_limit, "truncated", "step_limit", 44),
        (at_its_time_limit, "truncated", "time_limit", 11),
        (by_its_owner, "closed", "closed", 11),
        (idle, "expired", "expired", 11),
    ],
)
async def test_every_end_is_scored(end: Callable[..., Any], status: str, reason: str, reward: float):
    clock = ManualClock()
    limits: dict[str, Any] = {"idle_seconds": 20} if end is idle else {"max_seconds": 50, "idle_seconds": 1000}
    async with serving(JUDGED, clock=clock, **limits) as table:
        episode = await open_episode(table, "judged")
        await play(episode, "count")
        await end(table, episode, clock)
        await gone(table)
        info = episode.info()
    assert info.outcome is not None
    assert (info.status, info.outcome.status, info.outcome.reason) == (status, status, reason)
    assert (info.reward, info.outcome.infrastructure) == (reward, False)
    assert await_once(info)


def await_once(info: EpisodeInfo) -> bool:
    """Whether the score was added once."""
    return info.rewards.count(info.score) == 1


async def test_the_last_answer_does_not_wait_for_the_score():
    async with serving(SLOWLY) as table:
        episode = await open_episode(table, "slowly")
        result = await episode.call("stop", {"how": "terminated"}, call_id="last")
        assert (result.terminated, result.reward) == (True, None)
        assert result.outcome is not None
        assert result.outcome.reason == "terminated"
        await asked()
        waiting = episode.info()
        assert (waiting.status, waiting.outcome, waiting.reward, waiting.score) == ("scoring", None, None, None)
        with pytest.raises(EpisodeOver, match="It terminated after 1 step"):
            await episode.call("count", {})
        assert await episode.call("stop", {"how": "terminated"}, call_id="last") == result
        finishing = [asyncio.create_task(finished(table, episode)) for _ in range(2)]
        SlowlyJudged.gates[0].set()
        infos = [await one for one in finishing]
        infos.append(await finished(table, episode))
    assert SlowlyJudged.asked == 1
    assert [(info.status, info.reward) for info in infos] == 3 * [("terminated", 0.0)]


async def test_whoever_finishes_may_leave_and_ask_again():
    async with serving(SLOWLY) as table:
        episode = await open_episode(table, "slowly")
        await play(episode, "count")
        leaving = asyncio.create_task(finished(table, episode))
        await asked()
        leaving.cancel()
        await asyncio.wait([leaving])
        assert episode.status == "scoring"
        SlowlyJudged.gates[0].set()
        info = await finished(table, episode)
    assert (SlowlyJudged.asked, info.reward) == (1, 11.0)


async def test_an_episode_that_is_closed_or_reset_while_it_is_scored():
    async with serving(SLOWLY) as table:
        closed, again = [await open_episode(table, "slowly") for _ in range(2)]
        for episode in (closed, again):
            await play(episode, "count")
            await episode.call("stop", {"how": "terminated"})
        await asked(2)
        await close_episode(table, closed)
        resetting = asyncio.create_task(start_over(table, again))
        for gate in SlowlyJudged.gates:
            gate.set()
        await resetting
        info = await finished(table, closed)
        assert info.outcome is not None
        assert (info.status, info.outcome.reason, info.reward) == ("closed", "terminated", 11.0)
        # The play before the reset was scored, and its score is not that of the next one.
        assert (again.status, again.reward, again.info().score) == ("running", None, None)
        assert SlowlyJudged.asked == 2


@pytest.mark.parametrize(
    ("how", "reason"),
    [("error", "environment_error"), ("nan", "environment_error"), ("text", "environment_error"),
     ("exit", "worker_lost"), ("hang", "deadline")],
)  # fmt: skip
async def test_what_breaks_in_a_score_is_a_fault(how: str, reason: str):
    spec = EnvironmentDefinition("judged", Judged, {"score": how})
    async with serving(spec, runtime="process") as table:
        episode = await open_episode(table, "judged")
        await play(episode, "count")
        info = await finished(table, episode)
    assert info.outcome is not None
    assert (info.status, info.outcome.reason, info.outcome.infrastructure) == ("failed", reason, True)
    assert (info.reward, info.score) == (None, None)


async def test_a_thread_that_does_not_score_in_time_is_left():
    async with serving(EnvironmentDefinition("judged", Judged, {"score": "hang"}), runtime="thread") as table:
        info = await finished(table, await open_episode(table, "judged"))
    assert info.outcome is not None
    assert (info.outcome.reason, info.reward) == ("deadline", None)


async def test_no_score_leaves_the_rewards_as_they_are():
    async with serving(EnvironmentDefinition("judged", Judged, {"score": "none"})) as table:
        episode = await open_episode(table, "judged")
        await play(episode, "count")
        info = await finished(table, episode)
    assert (info.reward, info.score, info.rewards) == (1.0, None, [1.0])


async def test_after_a_fault_nothing_is_scored():
    async with serving(SLOWLY) as table:
        episode = await open_episode(table, "slowly")
        with pytest.raises(EpisodeFailed):
            await episode.call("crash", {})
        info = await finished(table, episode)
    assert (info.status, info.reward, SlowlyJudged.asked) == ("failed", None, 0)


async def test_finishing_an_environment_without_a_score():
    async with serving(EnvironmentDefinition("unjudged", Unjudged)) as table:
        episode = await open_episode(table, "unjudged")
        await play(episode, "step")
        first = await finished(table, episode)
        assert (first.status, first.reward, first.score) == ("truncated", 1.0, None)
        assert (await finished(table, episode)).outcome == first.outcome
        await close_episode(table, episode)
        assert (await finished(table, episode)).outcome == first.outcome


@pytest.mark.parametrize("kind", ["inline", "process"])
@pytest.mark.parametrize(("function", "reward"), [("by_rubric", 1 + 100 + 0.5), ("blocking", 1 + 7)])
async def test_a_function_from_outside_scores_instead(kind: RuntimeKind, function: str, reward: float):
    spec = load("scored_environments:Judged", score=f"scored_environments:{function}")
    async with serving(spec, runtime=kind) as table:
        episode = await open_episode(table, "judged", task=1)
        await play(episode, "count")
        info = await finished(table, episode)
    assert info.reward == reward


async def test_it_scores_environments_that_have_no_score():
    spec = EnvironmentDefinition("unjudged", Unjudged, scorer=Scorer.find("scored_environments:by_rubric"))
    async with serving(spec) as table:
        episode = await open_episode(table, "unjudged")
        await play(episode, "step")
        assert (await finished(table, episode)).reward == 1.5


@pytest.mark.parametrize(
    ("score", "function", "reason"),
    [("number", "broken", "environment_error"), ("number", "overdue", "deadline"),
     ("error", "by_rubric", "environment_error")],
)  # fmt: skip
async def test_what_breaks_outside_is_a_fault_too(score: str, function: str, reason: str):
    spec = load(f"scored_environments:Judged?score={score}", score=f"scored_environments:{function}")
    async with serving(replace(spec)) as table:
        info = await finished(table, await open_episode(table, "judged"))
    assert info.outcome is not None
    assert (info.outcome.reason, info.outcome.infrastructure, info.reward) == (reason, True, None)


@pytest.mark.parametrize(
    ("reference", "error", "said"),
    [
        ("rubric", ConfigurationError, "package.module:function or ./path/file.py:function"),
        ("scored_environments:nothing", ConfigurationError, "no function 'nothing' in scored_environments"),
        ("no_such_module:score", EnvironmentNotFound, "no module 'no_such_module'"),
        ("./nowhere.py:score", EnvironmentNotFound, "no file"),
        ("scored_environments:takes_too_little", ConfigurationError, "task, trajectory, final_state by name"),
    ],
)
def test_a_bad_scoring_function_is_refused_at_once(reference: str, error: type[Exception], said: str):
    with pytest.raises(error, match=said):
        load("scored_environments:Judged", score=reference)


@pytest.mark.parametrize("name", ["score", "final_state"])
def test_a_tool_cannot_be_taken_for_a_score(name: str):
    def method(self: Any) -> str:
        raise ToolError("no")

    with pytest.raises(InvalidEnvironment, match=f'@tool\\(name="{name}"\\)'):
        type("Player", (Environment,), {name: tool(method), "__module__": __name__})
