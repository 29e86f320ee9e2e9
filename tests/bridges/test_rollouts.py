"""Playing episodes from Python, for trainers that no bridge is written for yet."""

from __future__ import annotations

import asyncio
import gc
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import pytest
from cutting_proxy import cutting
from harness import running
from places import REFERENCES, Place, gateway
from pydantic import Field

from envport import Environment, Task, tool
from envport.client import AsyncClient
from envport.client.channel import Channel
from envport.errors import (
    ConfigurationError,
    EpisodeFailed,
    EpisodeOver,
    GatewayUnreachable,
    InvalidArguments,
    InvalidRequest,
    RequestError,
    UnknownTool,
)
from envport.registry import EnvironmentDefinition, load
from envport_bridges.rollouts import AsyncRollouts, Rollout, Rollouts, RolloutTarget
from envport_bridges.rollouts.connection import _connections, connect

PAGE = Path(__file__).parents[2] / "bridges/envport_bridges/rollouts/README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)


def rollouts_at(place: Place, name: str) -> Rollouts:
    return Rollouts(REFERENCES[name] if place.url is None else f"{place.url}/environments/{name}")


def text(reply: Any) -> str:
    return "".join(block["text"] for block in reply.content)


def test_an_episode_is_played_to_its_end(place: Place) -> None:
    rollouts = rollouts_at(place, "guess")
    with rollouts.open(split="train", task=3, seed=5) as rollout:
        assert (rollout.seed, rollout.outcome, rollout.reward, rollout.lost) == (5, None, None, False)
        assert rollout.prompt == rollouts.tasks("train", offset=3, limit=1).tasks[0].prompt
        wrong = rollout.call("guess", {"number": 9})
        assert (text(wrong), wrong.reward, rollout.outcome) == ("Wrong.", -0.25, None)
        right = rollout.call("guess", {"number": 3})
        assert text(right) == "Right."
    assert right.outcome is not None
    assert (rollout.outcome, rollout.reward) == (right.outcome, sum(r for r in rollout.rewards if r is not None))
    assert rollout.outcome.reason == "terminated"
    with pytest.raises(EpisodeOver):
        rollout.call("guess", {"number": 3})


def test_a_refused_call_is_told_and_the_episode_goes_on(place: Place) -> None:
    with rollouts_at(place, "guess").open(task=3) as rollout:
        with pytest.raises(InvalidArguments, match="number"):
            rollout.call("guess", {"number": "three"})
        with pytest.raises(UnknownTool):
            rollout.call("fly", {})
        assert (rollout.outcome, rollout.rewards) == (None, ())
        assert text(rollout.call("guess", {"number": 3})) == "Right."


@pytest.mark.parametrize("at_gateway", [False, True])
def test_a_copy_goes_on_apart_with_the_rewards_so_far(at_gateway: bool) -> None:
    with running(load("catch?rows=4")) if at_gateway else nullcontext() as gateway:
        rollouts = Rollouts(f"{gateway.url}/environments/catch" if gateway is not None else "catch?rows=4")
        with rollouts.open(seed=1) as rollout:
            rollout.call("move", {"direction": "left"})
            with pytest.raises(InvalidArguments):
                rollout.call("move", {"direction": "up"})
            seen = rollout.call("move", {"direction": "left"})
            with rollout.fork() as now, rollout.fork(2) as before:
                assert now.observation.text == text(seen)
                assert (now.rewards, before.rewards) == ((0.0, 0.0), (0.0,))
                last = [text(it.call("move", {"direction": "left"})) for it in (rollout, now, before)]
                assert last[0] == last[1] != last[2] == text(seen)
                assert (rollout.reward, before.outcome) == (now.reward, None)
            if gateway is not None:
                with pytest.raises(InvalidRequest, match="step is 9"):
                    asyncio.run(async_fork(gateway.url))


async def async_fork(url: str) -> None:
    rollouts = await AsyncRollouts.connect(f"{url}/environments/catch")
    async with await rollouts.open() as rollout, await rollout.fork() as copy:
        assert copy.observation == rollout.observation
        await rollout.fork(9)


async def test_a_gateway_that_is_away_is_told_by_its_address_and_the_systems_reason() -> None:
    nobody = "http://127.0.0.1:9"
    target = RolloutTarget(f"{nobody}/environments/catch", patience=0.0)
    # Each asks by another library.
    for ask in (lambda: AsyncRollouts.connect(target), Channel(nobody, {}).connect, AsyncClient(nobody).environments):
        with pytest.raises(GatewayUnreachable, match=f"^no answer from {nobody}: connection refused$"):
            await ask()
    _connections.pop(target).stop()


def test_the_tools_are_those_of_the_listing() -> None:
    with gateway() as serving:
        here, there = Rollouts(REFERENCES["mirror"]), Rollouts(f"{serving.url}/environments/mirror")
        assert repr(here.environment.tools) == repr(there.environment.tools)
        _connections.popitem()[1].stop()


def test_a_bad_choice_names_what_is_wrong(place: Place) -> None:
    rollouts = rollouts_at(place, "guess")
    with pytest.raises(RequestError, match="nowhere"):
        rollouts.open(split="nowhere")
    with pytest.raises(RequestError, match="seed is -1"):
        rollouts.open(seed=-1)


@pytest.mark.parametrize(
    "where", ["http://127.0.0.1:1", "http://127.0.0.1:1/environments/", "ftp://host/environments/catch", "http://[/x"]
)
def test_an_address_that_names_no_environment_is_refused(where: str) -> None:
    with pytest.raises(ConfigurationError, match=r"does not name an environment|there is no scheme 'ftp'"):
        Rollouts(where)


def test_no_gateway_is_said_after_the_patience() -> None:
    with pytest.raises(GatewayUnreachable):
        Rollouts(RolloutTarget("http://127.0.0.1:1/environments/catch", patience=0.0))


def test_a_lost_episode_has_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process dies in the middle of a call, after a step with a reward."""
    with gateway() as serving:
        rollouts = Rollouts(f"{serving.url}/environments/guess")
        rollout = rollouts.open(task=3)
        assert rollout.call("guess", {"number": 9}).reward is not None
        serving.run(lambda: serving.gateway.table.drain(0))
        with pytest.raises(EpisodeFailed):
            rollout.call("guess", {"number": 3})
        assert (rollout.lost, rollout.reward) == (True, None)
        assert rollout.outcome is not None
        assert rollout.outcome.fault == "infrastructure"
        _connections.popitem()[1].stop()


def test_closing_frees_the_place() -> None:
    with gateway() as serving:
        rollouts = Rollouts(f"{serving.url}/environments/guess")
        with rollouts.open(), rollouts.open():
            assert serving.gateway.table.live == 2
        Place().settle(lambda: serving.gateway.table.live == 0)
        _connections.popitem()[1].stop()


def test_a_lost_episode_frees_its_place_too() -> None:
    """It lives on at the gateway: only the answer to its call was lost."""
    with gateway() as serving, cutting(serving.url, cuts={0}) as proxy:
        rollouts = Rollouts(RolloutTarget(f"{proxy.url}/environments/guess", patience=0.0))
        rollout = rollouts.open(task=3)
        with pytest.raises(EpisodeFailed):
            rollout.call("guess", {"number": 9})
        assert rollout.lost
        Place().settle(lambda: serving.gateway.table.live == 0)
        _connections.popitem()[1].stop()


def test_closed_episodes_leave_nothing_behind(place: Place) -> None:
    def background_tasks() -> int:
        gc.collect()
        # By its type: asking some objects of torch for their class gives a warning.
        return sum(issubclass(type(it), asyncio.Task) for it in gc.get_objects())

    rollouts = rollouts_at(place, "guess")
    rollouts.open().close()
    before = background_tasks()
    for _ in range(20):
        rollouts.open().close()
    place.settle(lambda: background_tasks() < before + 20)


class Marked(Environment):
    def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    @tool
    def go(self, region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        return f"went to {region}"


def test_an_argument_that_is_marked_for_a_header_arrives() -> None:
    with running(EnvironmentDefinition("marked", Marked)) as serving:
        with Rollouts(f"{serving.url}/environments/marked").open() as rollout:
            assert text(rollout.call("go", {"region": "eu"})) == "went to eu"
        _connections.popitem()[1].stop()


def test_a_failure_in_the_background_is_not_logged_by_asyncio(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever needs the result awaits the task; for the others, such as episodes opened ahead, it is no news."""
    connection = connect(RolloutTarget(REFERENCES["guess"]))

    async def fail() -> None:
        raise EpisodeFailed("in the background")

    async def start() -> None:
        await asyncio.wait([connection.spawn(fail())])

    connection.loop.run(start())
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_many_at_once_from_async_code(place: Place) -> None:
    where = REFERENCES["guess"] if place.url is None else f"{place.url}/environments/guess"

    async def play(rollouts: AsyncRollouts, task: int) -> tuple[float | None, str]:
        async with await rollouts.open(split="train", task=task, seed=1) as rollout:
            reply = await rollout.call("guess", {"number": task})
            return rollout.reward, text(reply)

    async def main() -> list[tuple[float | None, str]]:
        rollouts = await AsyncRollouts.connect(where)
        assert (await rollouts.tasks("train", limit=2)).tasks[1].id
        return await asyncio.gather(*(play(rollouts, task) for task in range(8)))

    assert asyncio.run(main()) == [(1.0, "Right.")] * 8


def test_the_page_can_be_followed(capsys: pytest.CaptureFixture[str]) -> None:
    """Its blocks are run as they stand."""
    shown: dict[str, Any] = {}
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), shown)
    assert isinstance(shown["rollout"], Rollout)
    assert shown["rollout"].outcome.reason == "terminated"
    assert len(shown["rewards"]) == 8
    assert set(shown["rewards"]) <= {1.0, -1.0}
    assert "terminated" in capsys.readouterr().out
