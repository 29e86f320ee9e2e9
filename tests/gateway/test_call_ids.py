"""A call that has a name is played once, however often it is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from environments import Gate, Tracked
from harness import ERAS, WAYS, Era, Raw, RunningGateway, Way, running, seat
from patience import patient

from envport import Client, Environment, Task, tool
from envport.registry import EnvironmentDefinition


class Counting(Environment):
    """Counts the calls that reach it."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        self._count = 0
        return "zero"

    @tool
    def count(self, by: int = 1) -> str:
        """Count."""
        self._count += by
        return str(self._count)

    @tool
    def break_down(self) -> str:
        """Break."""
        raise RuntimeError("broken")


@pytest.fixture(scope="module")
def served():
    with running(*(EnvironmentDefinition(cls.__name__.lower(), cls) for cls in (Counting, Gate, Tracked))) as gateway:
        yield gateway


def named(call_id: Any) -> dict[str, Any]:
    return {"meta": {"envport/call_id": call_id}}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", WAYS)
async def test_the_latest_call_is_answered_again_and_not_played_again(served: RunningGateway, way: Way, era: Era):
    reference = f"{__file__}:Counting"
    async with seat(served, way, era, "counting", reference=reference) as player:
        first = await player.call("count", **named("a"))
        again = await player.call("count", **named("a"))
        after = await player.call("count", **named("b"))
        # Where the first call starts the episode, it begins with the first observation.
        assert first.content[-1].text.splitlines()[-1] == again.content[-1].text.splitlines()[-1] == "1"
        assert (again.meta["envport/step"], after.content[-1].text, after.meta["envport/step"]) == (1, "2", 2)
        assert [(await player.call("count")).content[-1].text for _ in range(2)] == ["3", "4"]


def test_errors_are_answered_again_too(served: RunningGateway):
    with Client(served.url) as control:
        opened = control.open("counting", seed=1)
        with Raw(opened.mcp_url, "modern") as raw:

            def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
                params = {"name": name, "arguments": arguments, "_meta": {"envport/call_id": call_id}}
                return raw.post("tools/call", params).json()["result"]

            refused = call("count", "a", by="one")
            assert (refused["_meta"]["envport/error"], call("count", "a", by="one")) == ("invalid_arguments", refused)
            assert control.episode(opened.episode_id).errors == 1
            failed = call("break_down", "b")
            assert (failed["_meta"]["envport/error"], call("break_down", "b")) == ("episode_failed", failed)
            assert call("count", "c")["_meta"]["envport/error"] == "episode_over"
            # A new play knows nothing of the names of the one before.
            control.reset(opened.episode_id)
            assert call("count", "b")["content"][0]["text"] == "1"


@pytest.mark.parametrize("era", ERAS)
async def test_an_id_that_is_used_for_another_call_is_refused(served: RunningGateway, era: Era):
    async with seat(served, "episode", era, "counting") as player:
        first = await player.call("count", {"by": 1}, **named("a"))
        others: list[tuple[str, dict[str, Any]]] = [
            ("count", {"by": 2}),
            ("count", {"by": True}),
            ("count", {}),
            ("break_down", {"by": 1}),
        ]
        for tool_name, arguments in others:
            other = await player.call(tool_name, arguments, **named("a"))
            assert (other.is_error, other.meta["envport/error"]) == (True, "invalid_request"), (tool_name, arguments)
            assert "The id 'a' belongs to the latest call, of 'count'" in other.content[0].text
            assert "was not played" in other.content[0].text
        again = await player.call("count", {"by": 1}, **named("a"))
        assert again.content == first.content
        assert (await player.call("count", **named("b"))).content[0].text == "2"


async def test_a_call_that_still_runs_is_waited_for(served: RunningGateway):
    Gate.rearm()
    async with seat(served, "episode", "modern", "gate") as player:
        first = asyncio.create_task(player.call("wait", **named("a")))
        assert await asyncio.to_thread(Gate.entered.acquire, timeout=patient(30))
        second = asyncio.create_task(player.call("wait", **named("a")))
        Gate.opened.set()
        results = await asyncio.gather(first, second)
        assert [result.meta["envport/step"] for result in results] == [1, 1]


async def test_the_end_of_an_episode_can_be_asked_for_again(served: RunningGateway):
    async with seat(served, "episode", "modern", "tracked") as player:
        ended = await player.call("finish", {"reward": 1.0}, **named("last"))
        again = await player.call("finish", {"reward": 1.0}, **named("last"))
        assert ended.meta["envport/outcome"] == again.meta["envport/outcome"] == "terminated"
        assert (await player.call("step")).meta["envport/error"] == "episode_over"


@pytest.mark.parametrize("call_id", ["", "x" * 201, 7, None, ["a"]])
async def test_a_malformed_name_is_refused_before_anything_is_played(served: RunningGateway, call_id: Any):
    async with seat(served, "episode", "modern", "counting") as player:
        result = await player.call("count", **named(call_id))
        if call_id is None:
            assert not result.is_error
            return
        assert result.meta["envport/error"] == "invalid_request"
        assert "'envport/call_id'] has to be a string of 1 to 200 characters" in result.content[0].text
        assert (await player.call("count")).content[0].text == "1"
