"""Episodes: opening, playing, ending, resetting, expiring; limits and isolation."""

from __future__ import annotations

import gc
import random
import sys
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Literal

import anyio
import pytest
from opening import close_episode, open_episode, start_over

from envport import Environment, Progress, Step, Task, ToolDefinition, ToolError, tool
from envport.clock import ManualClock
from envport.episodes import CallResult, Episode, Episodes, Limits
from envport.errors import (
    AtCapacity,
    ConfigurationError,
    Draining,
    EpisodeFailed,
    EpisodeOver,
    InvalidArguments,
    InvalidRequest,
    UnknownEnvironment,
    UnknownEpisode,
    UnknownTask,
    UnknownTool,
)
from envport.registry import EnvironmentDefinition, load

ME = "me"


class Play(Environment):
    """Does what it is told."""

    max_steps = 50
    living: int = 0
    calls: int = 0

    def __init__(self, breaks: Literal["nowhere", "reset", "close"] = "nowhere"):
        self._breaks = breaks
        self._count = 0

    def splits(self) -> dict[str, list[dict[str, Any]]]:
        return {"train": [{"id": f"t{i}", "prompt": f"Do {i}."} for i in range(20)], "test": [{"id": "last"}]}

    def reset(self, *, seed: int, task: Task | None) -> str:
        type(self).living += 1
        self.gate: anyio.Event | None = None
        if self._breaks == "reset":
            raise RuntimeError("inside")
        return f"{task.id if task else None} {seed} {self.rng.randrange(1000)}"

    def close(self) -> None:
        type(self).living -= 1
        if self._breaks == "close":
            raise RuntimeError("inside")

    @tool
    def count(self, by: int = 1) -> Step:
        """Count."""
        type(self).calls += 1
        self._count += by
        return Step(self._count, reward=float(by))

    @tool
    def look(self) -> str:
        """Look, without a reward."""
        return f"at {self._count}"

    @tool
    def stop(self, how: Literal["terminated", "truncated", "both"]) -> Step:
        """Stop."""
        return Step("stopped", 0.5, terminated=how != "truncated", truncated=how != "terminated")

    @tool
    def refuse(self) -> str:
        """Refuse."""
        raise ToolError("not now")

    @tool
    def crash(self, how: Literal["error", "exit", "reward", "observation", "nan"]) -> Any:
        """Break."""
        match how:
            case "error":
                raise RuntimeError("inside")
            case "exit":
                sys.exit(3)
            case "reward":
                return Step("", reward="much")  # type: ignore[arg-type]
            case "nan":
                return Step("", reward=float("nan"))
            case _:
                return object()

    @tool
    async def wait(self, progress: Progress) -> str:
        """Wait for ever, until let go."""
        progress(1)
        GATES.append(anyio.Event())
        await GATES[-1].wait()
        return "waited"


GATES: list[anyio.Event] = []


class Last(Play):
    reward = "last"
    max_steps = 3


class Threaded(Play):
    runtime = "thread"


SPECS = {
    spec.name: spec
    for spec in (
        EnvironmentDefinition("play", Play),
        EnvironmentDefinition("last", Last),
        EnvironmentDefinition("threaded", Threaded),
        EnvironmentDefinition("unopenable", Play, {"breaks": "reset"}),
        EnvironmentDefinition("unclosable", Play, {"breaks": "close"}),
        load("counter"),
    )
}


@pytest.fixture(autouse=True)
def nothing_stays_alive() -> Any:
    GATES.clear()
    for cls in (Play, Last, Threaded):
        cls.living = 0
        cls.calls = 0
    yield
    assert [cls.living for cls in (Play, Last, Threaded)] == [0, 0, 0]


@asynccontextmanager
async def episodes(clock: ManualClock | None = None, **limits: Any) -> AsyncIterator[Episodes]:
    table = Episodes(SPECS, Limits(**limits), clock or ManualClock())
    async with table.run():
        yield table
    assert table.live == 0


async def opened(table: Episodes, environment: str = "play", **wanted: Any) -> Episode:
    return await open_episode(table, environment, ME, **wanted)


async def text(episode: Episode, tool: str, **arguments: Any) -> str:
    return (await episode.call(tool, arguments)).observation.text


# Opening.


async def test_the_same_task_and_seed_give_the_same_episode() -> None:
    async with episodes() as table:
        seen = {(await opened(table, seed=7, task=3)).first_observation.text for _ in range(5)}
        assert len(seen) == 1
        assert seen.pop().startswith("t3 7 ")
        assert (await opened(table, seed=8, task=3)).first_observation.text.startswith("t3 8 ")


async def test_without_a_task_the_seed_chooses_one_and_without_a_seed_chance_does() -> None:
    async with episodes() as table:
        chosen = {(await opened(table, seed=7)).info().task_index for _ in range(3)}
        assert len(chosen) == 1
        info = (await opened(table)).info()
        assert 0 <= info.seed < 2**31
        assert info.split == "train"
        assert len({(await opened(table)).info().seed for _ in range(20)}) > 1
        assert (await opened(table, split="test")).info().task == Task(id="last")


async def test_a_task_of_the_callers_own_and_its_prompt() -> None:
    async with episodes() as table:
        assert (await opened(table, task={"id": "mine", "prompt": "Do mine."})).prompt == "Do mine."
        assert (await opened(table, task=Task(id="mine"))).prompt == "Does what it is told."
        assert (await opened(table, task=2)).prompt == "Do 2."


@pytest.mark.parametrize(
    ("wanted", "error", "complaint"),
    [
        ({"environment": "nowhere"}, UnknownEnvironment, "'nowhere'.*'play'"),
        ({"split": "nowhere"}, UnknownTask, "'train', 'test'"),
        ({"task": 20}, UnknownTask, "0 to 19"),
        ({"task": -1}, UnknownTask, "0 to 19"),
        ({"task": True}, InvalidRequest, "index"),
        ({"task": "t1"}, InvalidRequest, "index"),
        ({"task": {"prompt": "no id"}}, InvalidRequest, "malformed"),
        ({"environment": "counter", "task": 0}, InvalidRequest, "no tasks"),
        ({"environment": "counter", "split": "train"}, UnknownTask, "its splits are: none"),
        ({"seed": -1}, InvalidRequest, "seed is -1"),
        ({"seed": 2**63}, InvalidRequest, "seed is"),
        ({"seed": True}, InvalidRequest, "seed is True"),
        ({"seed": 1.5}, InvalidRequest, "seed is 1.5"),
    ],
)
async def test_what_cannot_be_opened_takes_no_place(
    wanted: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    async with episodes() as table:
        with pytest.raises(error, match=complaint):
            await opened(table, **wanted)
        assert table.live == 0


async def test_an_environment_that_breaks_in_reset_takes_no_place(caplog: pytest.LogCaptureFixture) -> None:
    async with episodes(max_episodes=1, wait_seconds=0) as table:
        for _ in range(3):
            with pytest.raises(EpisodeFailed) as caught:
                await opened(table, "unopenable")
            assert "inside" not in str(caught.value)
        assert table.live == 0
        assert "RuntimeError: inside" in caplog.text


class Slow(Environment):
    """Takes its time to begin."""

    living: int = 0

    async def reset(self, *, seed: int, task: Task | None) -> str:
        type(self).living += 1
        GATES.append(anyio.Event())
        await GATES[-1].wait()
        return "ready"

    def close(self) -> None:
        type(self).living -= 1

    @tool
    def act(self) -> str:
        """Act."""
        return "acted"


async def test_who_goes_away_while_the_environment_begins_leaves_nothing_behind() -> None:
    table = Episodes({"slow": EnvironmentDefinition("slow", Slow)}, Limits(), ManualClock())
    async with table.run():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(open_episode, table, "slow", ME)
            await anyio.wait_all_tasks_blocked()
            assert (table.live, Slow.living) == (1, 1)
            tasks.cancel_scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert (table.live, Slow.living) == (0, 0)


async def test_two_resets_of_an_ended_episode_take_one_place() -> None:
    async with episodes() as table:
        episode = await opened(table)
        await episode.call("stop", {"how": "terminated"})
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(start_over, table, episode)
        assert (table.live, Play.living, episode.info().resets) == (1, 1, 3)


async def test_a_reset_whose_caller_goes_away_is_finished() -> None:
    table = Episodes({"slow": EnvironmentDefinition("slow", Slow)}, Limits(), ManualClock())
    async with table.run():
        made: list[Episode] = []

        async def open_one() -> None:
            made.append(await open_episode(table, "slow", ME))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(open_one)
            await anyio.wait_all_tasks_blocked()
            GATES[-1].set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start_over, table, made[0])
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            GATES[-1].set()
        assert await text(made[0], "act") == "acted"
        assert (table.live, Slow.living) == (1, 1)
    assert Slow.living == 0


# Playing.


async def test_state_and_counts() -> None:
    async with episodes() as table:
        episode = await opened(table, reward_in_meta=True)
        assert [await text(episode, "count") for _ in range(3)] == ["1", "2", "3"]
        await text(episode, "look")
        result = await episode.call("count", {"by": -2})
        assert (result.step, result.reward, result.is_error, result.outcome) == (5, -2.0, False, None)
        info = episode.info()
        assert (info.status, info.outcome, info.steps, info.errors) == ("running", None, 5, 0)
        assert (info.rewards, info.reward) == ([1, 1, 1, None, -2], 1.0)
        assert info.expires_in == table.limits.idle_seconds
        assert result.reward_in_meta


async def test_an_episode_without_a_reward_signal_has_none() -> None:
    async with episodes() as table:
        episode = await opened(table)
        await text(episode, "look")
        assert episode.info().reward is None
        assert episode.info().rewards == [None]


async def test_the_last_reward_counts_where_the_environment_says_so() -> None:
    async with episodes() as table:
        episode = await opened(table, "last")
        for by in (1, 5):
            await episode.call("count", {"by": by})
        await text(episode, "look")
        assert episode.info().reward == 5.0


async def test_bad_arguments_do_not_touch_the_environment() -> None:
    async with episodes() as table:
        episode = await opened(table)
        for arguments in ({"by": "x"}, {"by": 1.5}, {"bye": 1}):
            with pytest.raises(InvalidArguments):
                await episode.call("count", arguments)
        assert Play.calls == 0
        with pytest.raises(UnknownTool, match="Unknown tool: fly"):
            await episode.call("fly", {})
        info = episode.info()
        assert (info.status, info.steps, info.errors) == ("running", 0, 3)
        assert await text(episode, "count") == "1"


async def test_a_tool_error_is_for_the_player_and_the_episode_goes_on() -> None:
    async with episodes() as table:
        episode = await opened(table)
        result = await episode.call("refuse", {})
        assert (result.is_error, result.observation.text, result.step) == (True, "not now", 1)
        info = episode.info()
        assert (info.status, info.errors, info.steps, info.rewards) == ("running", 1, 1, [None])


@pytest.mark.parametrize("how", ["error", "exit", "reward", "observation", "nan"])
@pytest.mark.parametrize("environment", ["play", "threaded"])
async def test_an_environment_that_breaks_ends_its_episode_as_failed(
    environment: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with episodes() as table:
        episode, other = await opened(table, environment), await opened(table, environment)
        await text(episode, "count")
        with pytest.raises(EpisodeFailed) as caught:
            await episode.call("crash", {"how": how})
        assert "inside" not in str(caught.value)
        info = episode.info()
        assert info.status == "failed"
        assert info.reward is None
        assert info.outcome is not None
        assert info.outcome.fault == "environment"
        assert info.outcome.reason == "environment_error"
        assert "Traceback" in caplog.text
        assert table.live == 1
        with pytest.raises(EpisodeOver, match="The environment failed"):
            await text(episode, "look")
        assert await text(other, "count") == "1"


@pytest.mark.parametrize(
    ("how", "status"), [("terminated", "terminated"), ("truncated", "truncated"), ("both", "terminated")]
)
async def test_an_ended_episode_says_how_it_ended_and_frees_its_place(how: str, status: str) -> None:
    async with episodes(max_episodes=1, wait_seconds=0) as table:
        episode = await opened(table)
        result = await episode.call("stop", {"how": how})
        assert result.outcome is not None
        assert (result.outcome.status, result.reward) == (status, 0.5)
        assert (result.terminated, result.truncated) == (how != "truncated", how != "terminated")
        assert result.outcome.fault is None
        assert Play.living == 0
        with pytest.raises(EpisodeOver, match=rf"over and takes no more calls\. It (was )?{status} after 1 step"):
            await text(episode, "count")
        # It can still be looked at, and another one has room.
        assert table.episode(episode.handle, ME).info().reward == 0.5
        await opened(table)


async def test_the_step_limit_truncates() -> None:
    async with episodes() as table:
        episode = await opened(table, "last")
        for _ in range(2):
            await text(episode, "count")
        result = await episode.call("count", {})
        assert (result.terminated, result.truncated) == (False, True)
        assert result.outcome is not None
        assert result.outcome.reason == "step_limit"
        assert "limit of 3 steps" in result.outcome.message


async def test_what_happened_is_recorded() -> None:
    async with episodes() as table:
        episode = await opened(table, seed=1)
        await episode.call("count", {"by": 2})
        with pytest.raises(InvalidArguments):
            await episode.call("count", {"by": "x"})
        await episode.call("refuse", {})
        await episode.call("stop", {"how": "terminated"})
        first, records, dropped = await table.trajectories.read(episode.handle)
        assert first == episode.first_observation
        assert dropped == 0
        assert [(one.index, one.tool, one.arguments, one.error, one.reward) for one in records] == [
            (1, "count", {"by": 2}, None, 2.0),
            (2, "count", {"by": "x"}, "invalid_arguments", None),
            (3, "refuse", {}, "tool_error", None),
            (4, "stop", {"how": "terminated"}, None, 0.5),
        ]
        assert [one.terminated for one in records] == [False, False, False, True]
        assert records[2].observation.text == "not now"


class Careless(Environment):
    """Changes what it is given."""

    def reset(self, *, seed: int, task: Task | None) -> None: ...

    @tool
    def typed(self, items: list[int], thing: Any) -> str:
        """Change them."""
        items.append(9)
        thing["changed"] = True
        return "changed"

    def foreign(self, name: str, arguments: dict[str, Any]) -> str:
        arguments["items"].append(9)
        arguments["thing"]["changed"] = True
        return "changed"

    def tool_definitions(self) -> list[ToolDefinition]:
        return [ToolDefinition("untyped", {"properties": {}}, "foreign")]


@pytest.mark.parametrize("name", ["typed", "untyped"])
async def test_what_is_recorded_is_what_the_player_sent(name: str) -> None:
    table = Episodes({"careless": EnvironmentDefinition("careless", Careless)}, Limits(), ManualClock())
    async with table.run():
        episode = await open_episode(table, "careless", ME)
        assert await text(episode, name, items=[1], thing={}) == "changed"
        _, (record,), _ = await table.trajectories.read(episode.handle)
        assert record.arguments == {"items": [1], "thing": {}}


class Wrapped(Play):
    """Has a method that returns a coroutine without being a coroutine function."""

    @tool
    def wrapped(self) -> Any:
        """Return what is to be awaited."""
        return self._inner()

    async def _inner(self) -> str:
        return "awaited"


class WrappedThreaded(Wrapped):
    runtime = "thread"


@pytest.mark.parametrize("cls", [Wrapped, WrappedThreaded])
async def test_what_a_tool_returns_is_awaited_in_every_runtime(cls: type[Environment]) -> None:
    table = Episodes({"wrapped": EnvironmentDefinition("wrapped", cls)}, Limits(), ManualClock())
    async with table.run():
        assert await text(await open_episode(table, "wrapped", ME), "wrapped") == "awaited"


# One call at a time.


async def test_calls_to_one_episode_take_turns_and_others_do_not_wait() -> None:
    async with episodes() as table:
        episode, other = await opened(table), await opened(table)
        order: list[str] = []

        async def play(name: str, tool: str) -> None:
            order.append(f"{name} {await text(episode, tool)}")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play, "first", "wait")
            await anyio.wait_all_tasks_blocked()
            for name in ("second", "third"):
                tasks.start_soon(play, name, "count")
                await anyio.wait_all_tasks_blocked()
            assert episode.busy
            assert order == []
            assert await text(other, "count") == "1"
            GATES[0].set()
        assert order == ["first waited", "second 1", "third 2"]
        assert not episode.busy


@pytest.mark.parametrize("environment", ["play", "threaded"])
async def test_interleaved_players_each_count_one_two_three(environment: str) -> None:
    async with episodes() as table:

        async def play() -> None:
            episode = await opened(table, environment)
            for expected in range(1, 21):
                assert await text(episode, "count") == str(expected)
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(play)


async def test_a_call_whose_caller_goes_away_is_finished_and_recorded() -> None:
    async with episodes() as table:
        episode = await opened(table)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(text, episode, "wait")
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
            GATES[0].set()
        _, records, _ = await table.trajectories.read(episode.handle)
        assert [one.observation.text for one in records] == ["waited"]
        assert await text(episode, "count") == "1"


async def test_a_call_that_waits_its_turn_and_goes_away_never_happens() -> None:
    async with episodes() as table:
        episode = await opened(table)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(text, episode, "wait")
            await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(text, episode, "count")
                await anyio.wait_all_tasks_blocked()
                waiting.cancel_scope.cancel()
            GATES[0].set()
        assert await text(episode, "count") == "1"


# Closing.


async def test_a_closed_episode_is_unknown_to_players_and_still_to_be_looked_at() -> None:
    async with episodes() as table:
        episode = await opened(table)
        await close_episode(table, episode)
        await anyio.wait_all_tasks_blocked()
        assert Play.living == 0
        assert table.live == 0
        for attempt in (lambda: table.find(episode.handle, ME), lambda: table.episode(episode.handle, "you")):
            with pytest.raises(UnknownEpisode):
                attempt()
        with pytest.raises(UnknownEpisode):
            await text(episode, "count")
        with pytest.raises(UnknownEpisode):
            await start_over(table, episode)
        info = table.episode(episode.handle, ME).info()
        assert (info.status, info.expires_in) == ("closed", None)


async def test_closing_waits_for_the_call_that_runs() -> None:
    async with episodes() as table:
        episode = await opened(table)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(text, episode, "wait")
            await anyio.wait_all_tasks_blocked()
            await close_episode(table, episode)
            await close_episode(table, episode)
            await anyio.wait_all_tasks_blocked()
            assert Play.living == 1
            GATES[0].set()
        await anyio.wait_all_tasks_blocked()
        assert Play.living == 0


async def test_closing_keeps_the_outcome_of_what_has_ended() -> None:
    async with episodes() as table:
        episode = await opened(table)
        await episode.call("stop", {"how": "terminated"})
        await close_episode(table, episode)
        info = episode.info()
        assert info.status == "closed"
        assert info.outcome is not None
        assert (info.outcome.status, info.reward) == ("terminated", 0.5)


async def test_an_environment_that_breaks_in_close_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    async with episodes(max_episodes=1, wait_seconds=0) as table:
        for _ in range(2):
            episode = await opened(table, "unclosable")
            result = await episode.call("stop", {"how": "terminated"})
            assert result.outcome is not None
        assert table.live == 0
        assert "broke while it was being closed" in caplog.text


@pytest.mark.parametrize("handle", ["", "ep_", "ep_unknown", "ep_" + "x" * 32, "\0"])
async def test_unknown_and_foreign_handles_look_alike(handle: str) -> None:
    async with episodes() as table:
        episode = await opened(table)
        messages: set[str] = set()
        for one, principal in ((handle, ME), (episode.handle, "you")):
            for ask in (table.find, table.episode):
                with pytest.raises(UnknownEpisode) as caught:
                    ask(one, principal)
                messages.add(str(caught.value))
        assert len(messages) == 1
        assert "start_episode" in messages.pop()


async def test_handles_are_long_and_never_the_same() -> None:
    async with episodes() as table:
        handles = {(await opened(table)).handle for _ in range(100)}
        assert len(handles) == 100
        assert min(map(len, handles)) >= len("ep_") + 22


async def test_shutting_down_closes_everything() -> None:
    async with episodes() as table:
        one = await opened(table)
        two = await opened(table)
        await two.call("stop", {"how": "terminated"})
    assert one.info().outcome == one.outcome
    assert one.outcome is not None
    assert (one.outcome.reason, one.outcome.fault) == ("shutdown", "infrastructure")
    assert two.status == "terminated"


@pytest.mark.parametrize("end", ["close", "stop"])
async def test_an_ended_episode_keeps_no_large_task_of_its_caller(end: str) -> None:
    async with episodes() as table:
        task = Task(id="mine", prompt="Do mine.", metadata={"text": "x" * 2**20})
        kept = weakref.ref(task)
        episode = await opened(table, task=task)
        assert episode.info().task == task
        await (close_episode(table, episode) if end == "close" else episode.call("stop", {"how": "terminated"}))
        del task
        await anyio.wait_all_tasks_blocked()
        gc.collect()
        assert kept() is None
        info = episode.info()
        assert (info.task, info.task_index, info.seed) == (Task(id="mine"), None, episode.start.seed)
        if end == "stop":
            with pytest.raises(InvalidRequest, match=r"more than 16 KiB is not kept .* give the task again"):
                await start_over(table, episode)
            await start_over(table, episode, task=Task(id="next"))
            assert (episode.status, episode.info().task) == ("running", Task(id="next"))


async def test_an_ended_episode_still_tells_its_task_and_can_start_over_with_it() -> None:
    async with episodes() as table:
        small = Task(id="mine", prompt="Do mine.", metadata={"answer": 42})
        for choice in ({"task": 3}, {"task": small}):
            episode = await opened(table, **choice)
            before, prompt = episode.info(), episode.prompt
            await episode.call("stop", {"how": "terminated"})
            after = episode.info()
            assert (after.split, after.task, after.task_index) == (before.split, before.task, before.task_index)
            assert episode.prompt == prompt
            await start_over(table, episode)
            assert (episode.status, episode.info().task) == ("running", before.task)


# Starting over.


async def test_a_reset_starts_over_with_the_same_task_and_seed() -> None:
    async with episodes() as table:
        episode = await opened(table, seed=3)
        before = episode.first_observation
        await text(episode, "count")
        await start_over(table, episode)
        assert episode.first_observation == before
        assert await text(episode, "count") == "1"
        info = episode.info()
        assert (info.resets, info.steps, info.rewards) == (1, 1, [1.0])
        await start_over(table, episode, seed=4)
        assert episode.info().seed == 4
        assert episode.info().task == info.task
        await start_over(table, episode, split="test")
        assert episode.info().task == Task(id="last")
        await start_over(table, episode, task=0)
        assert (episode.info().split, episode.info().task_index) == ("test", 0)
        assert Play.living == 1
        assert len((await table.trajectories.read(episode.handle))[1]) == 0


async def test_a_bad_reset_changes_nothing() -> None:
    async with episodes() as table:
        episode = await opened(table, seed=3)
        await text(episode, "count")
        for wanted in ({"task": 99}, {"split": "no"}, {"seed": -1}):
            with pytest.raises((UnknownTask, InvalidRequest)):
                await start_over(table, episode, **wanted)
        assert await text(episode, "count") == "2"


@pytest.mark.parametrize(("tool", "arguments"), [("stop", {"how": "terminated"}), ("crash", {"how": "error"})])
async def test_an_ended_or_failed_episode_can_start_over(tool: str, arguments: dict[str, Any]) -> None:
    async with episodes() as table:
        episode = await opened(table)
        with suppress(EpisodeFailed):
            await episode.call(tool, arguments)
        assert table.live == 0
        await start_over(table, episode)
        assert (table.live, episode.info().status, episode.info().outcome) == (1, "running", None)
        assert await text(episode, "count") == "1"


async def test_starting_over_needs_room() -> None:
    async with episodes(max_episodes=1, wait_seconds=0) as table:
        episode = await opened(table)
        await episode.call("stop", {"how": "terminated"})
        other = await opened(table)
        with pytest.raises(AtCapacity):
            await start_over(table, episode)
        assert episode.status == "terminated"
        await start_over(table, other)
        await close_episode(table, other)
        await anyio.wait_all_tasks_blocked()
        await start_over(table, episode)
        assert await text(episode, "count") == "1"


async def test_a_reset_that_its_caller_leaves_keeps_no_place() -> None:
    async with episodes(max_episodes=1, wait_seconds=0) as table:
        episode = await opened(table)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(text, episode, "wait")
            await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as resetting:
                resetting.start_soon(start_over, table, episode)
                await anyio.wait_all_tasks_blocked()
                resetting.cancel_scope.cancel()
            GATES[0].set()
        assert await text(episode, "count") == "1"
        await close_episode(table, episode)
        await anyio.wait_all_tasks_blocked()
        assert table.live == 0


async def test_closing_while_a_reset_waits_for_room_keeps_no_place() -> None:
    async with episodes(max_episodes=1, wait_seconds=60) as table:
        episode = await opened(table)
        await episode.call("stop", {"how": "terminated"})
        other = await opened(table)
        outcome: list[str] = []

        async def reset() -> None:
            with pytest.raises(UnknownEpisode):
                await start_over(table, episode)
            outcome.append("refused")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reset)
            await anyio.wait_all_tasks_blocked()
            await close_episode(table, episode)
            await close_episode(table, other)
        await anyio.wait_all_tasks_blocked()
        assert outcome == ["refused"]
        assert table.live == 0


# Expiring.


class Moody(Play):
    """Breaks the limit that the reaper looks at."""

    broken: bool = False

    @property
    def max_seconds(self) -> float | None:  # type: ignore[override]
        if type(self).broken:
            raise RuntimeError("no limit today")
        return None


async def test_an_episode_that_cannot_be_reaped_keeps_no_other_from_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    specs = {"moody": EnvironmentDefinition("moody", Moody), "play": EnvironmentDefinition("play", Play)}
    table = Episodes(specs, Limits(idle_seconds=60), clock)
    async with table.run():
        broken, other = await opened(table, "moody"), await opened(table)
        monkeypatch.setattr(Moody, "broken", True)
        for _ in range(30):
            await clock.advance(3)
        assert (broken.status, other.status) == ("running", "expired")
        monkeypatch.setattr(Moody, "broken", False)
        await clock.advance(3)
        assert broken.status == "expired"
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert said == [f"episode {broken.handle} cannot be reaped"]


async def test_an_episode_that_idles_expires_and_is_forgotten_later() -> None:
    clock = ManualClock()
    async with episodes(clock, idle_seconds=100) as table:
        idle, used = await opened(table), await opened(table)
        for _ in range(3):
            await clock.advance(60)
            await text(used, "count")
        info = table.episode(idle.handle, ME).info()
        assert info.status == "expired"
        assert info.outcome is not None
        assert (info.outcome.reason, info.outcome.fault) == ("expired", None)
        assert "1.66667 minutes" in info.outcome.message
        assert table.live == 1
        with pytest.raises(UnknownEpisode):
            table.find(idle.handle, ME)
        await clock.advance(100)
        with pytest.raises(UnknownEpisode):
            table.episode(idle.handle, ME)
        assert (await table.trajectories.read(idle.handle))[1] == []


async def test_a_call_that_runs_is_not_idle() -> None:
    clock = ManualClock()
    async with episodes(clock, idle_seconds=100) as table:
        episode = await opened(table)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(text, episode, "wait")
            await clock.advance(500)
            assert episode.status == "running"
            GATES[0].set()
        assert await text(episode, "count") == "1"


async def test_only_so_many_ended_episodes_are_remembered() -> None:
    async with episodes(max_ended=2) as table:
        ended: list[Episode] = []
        for _ in range(4):
            ended.append(await opened(table))
            await ended[-1].call("stop", {"how": "terminated"})
        await anyio.wait_all_tasks_blocked()
        for episode in ended[:2]:
            with pytest.raises(UnknownEpisode):
                table.episode(episode.handle, ME)
            assert (await table.trajectories.read(episode.handle))[1] == []
        for episode in ended[2:]:
            assert table.episode(episode.handle, ME) is episode


# Limits.


async def test_past_capacity_one_waits_and_gets_the_place_that_comes_free() -> None:
    async with episodes(max_episodes=2, wait_seconds=60) as table:
        first, _ = await opened(table), await opened(table)
        got: list[Episode] = []

        async def wait() -> None:
            got.append(await opened(table))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert got == []
            await first.call("stop", {"how": "terminated"})
        assert len(got) == 1
        assert table.live == 2


async def test_a_principal_has_a_limit_of_its_own() -> None:
    async with episodes(max_episodes=9, max_episodes_per_principal=1, wait_seconds=0) as table:
        await opened(table)
        with pytest.raises(AtCapacity, match="your 1 episodes") as caught:
            await opened(table)
        assert caught.value.retry_after >= 1
        await open_episode(table, "play", "you")


class Scarce(Play):
    """There are two of it."""

    max_episodes = 2


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({}, 2),
        ({"max_episodes_per_environment": 3}, 3),
        ({"max_episodes_of": {"scarce": 1}}, 1),
        ({"max_episodes_of": {"scarce": 4}, "max_episodes_per_environment": 1}, 4),
    ],
)
async def test_an_environment_has_a_limit_of_its_own(limits: dict[str, Any], most: int) -> None:
    specs = {"scarce": EnvironmentDefinition("scarce", Scarce), "play": EnvironmentDefinition("play", Play)}
    table = Episodes(specs, Limits(wait_seconds=0, **limits))
    async with table.run():
        held = [await open_episode(table, "scarce", ME) for _ in range(most)]
        with pytest.raises(AtCapacity, match=f"all {most} episodes of environment 'scarce'"):
            await open_episode(table, "scarce", "you")
        await open_episode(table, "play", ME)
        await held[0].call("stop", {"how": "terminated"})
        await open_episode(table, "scarce", "you")
        with pytest.raises(AtCapacity, match="of environment 'scarce'"):
            await start_over(table, held[0])


def test_a_limit_for_an_environment_that_is_not_served_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'scarcity', which is not served; served: 'play'"):
        Episodes({"play": EnvironmentDefinition("play", Play)}, Limits(max_episodes_of={"scarcity": 1}))


# Draining.


async def test_a_drain_waits_for_the_live_ones_and_refuses_new_ones() -> None:
    async with episodes(max_episodes=2, wait_seconds=60) as table:
        over, live = await opened(table), await opened(table)
        refused: list[str] = []

        async def wait() -> None:
            with pytest.raises(Draining):
                await opened(table)
            refused.append("waiting")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(table.drain, 60)
            await anyio.wait_all_tasks_blocked()
            assert refused == ["waiting"]
            assert table.draining
            await over.call("stop", {"how": "terminated"})
            for work in (partial(opened, table), partial(start_over, table, over)):
                with pytest.raises(Draining):
                    await work()
            await start_over(table, live)
            assert await text(live, "count") == "1"
            await live.call("stop", {"how": "terminated"})
        assert (live.status, table.live) == ("terminated", 0)


async def test_a_drain_ends_what_is_left_at_its_limit_without_cutting_calls_short() -> None:
    async with episodes() as table:
        idle, busy = await opened(table), await opened(table)
        results: list[CallResult] = []

        async def call() -> None:
            results.append(await busy.call("wait", {}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            await table.drain(0.01)
            for episode in (idle, busy):
                assert episode.outcome is not None
                outcome = (episode.status, episode.outcome.reason, episode.outcome.fault)
                assert outcome == ("closed", "shutdown", "infrastructure")
                assert episode.reward is None
            assert results == []
            GATES[0].set()
        assert len(results) == 1
        await anyio.wait_all_tasks_blocked()
        assert table.live == 0


class Draws(Environment):
    """Draws a number in a tool, and none before."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    @tool
    def draw(self) -> str:
        """Draw a number."""
        return str(self.rng.randrange(10**9))

    @tool
    def take_another_generator(self) -> str:
        """Replace the generator."""
        self.rng = random.Random("another")
        return "taken"


async def test_the_generator_is_that_of_the_seed_whenever_it_is_used_first():
    episodes = Episodes({"draws": EnvironmentDefinition("draws", Draws)})
    for seed in (7, 7, 8):
        episode = await open_episode(episodes, "draws", seed=seed)
        expected = random.Random(seed)
        for _ in range(2):
            result = await episode.call("draw", {})
            assert result.observation.text == str(expected.randrange(10**9))
        await episode.call("take_another_generator", {})
        result = await episode.call("draw", {})
        assert result.observation.text == str(random.Random("another").randrange(10**9))
    with pytest.raises(AttributeError, match=r"Draws\.rng is there from the call of reset\(\) on"):
        _ = Draws().rng
