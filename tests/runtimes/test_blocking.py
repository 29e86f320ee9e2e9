"""What blocks the event loop is named in the log, once, with the remedy."""

import time

import anyio
import pytest
from opening import open_episode
from runtimes import serving

from envport import Environment, Task, ToolError, tool
from envport.environment import RuntimeKind
from envport.registry import EnvironmentDefinition

LONG = 0.15


class Slow(Environment):
    """Takes its time."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    @tool
    def block(self) -> str:
        """Block."""
        time.sleep(LONG)
        return "done"

    @tool
    def block_and_refuse(self) -> str:
        """Block, and refuse."""
        time.sleep(LONG)
        raise ToolError("no")

    @tool
    async def wait(self) -> str:
        """Wait without blocking."""
        await anyio.sleep(LONG)
        return "done"


class SlowToBegin(Slow):
    """Takes its time to begin."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        time.sleep(LONG)
        return "ready"


def said(caplog: pytest.LogCaptureFixture, where: str) -> list[str]:
    """What is said of a place. On a busy machine, others may take long too."""
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if "blocked the event loop" in line and f"in {where}." in line]


async def test_a_blocking_tool_is_named_once(caplog: pytest.LogCaptureFixture):
    async with serving(EnvironmentDefinition("slow", Slow)) as episodes:
        for _ in range(2):
            episode = await open_episode(episodes, "slow")
            await episode.call("block", {})
        (warning,) = said(caplog, "tool 'block'")
        assert warning.startswith("environment slow blocked the event loop, and with it every other episode, for ")
        assert 's in tool \'block\'. Make it async, or set runtime = "thread" or "process".' in warning
        await episode.call("block_and_refuse", {})
        assert len(said(caplog, "tool 'block_and_refuse'")) == 1


async def test_a_blocking_reset_is_named(caplog: pytest.LogCaptureFixture):
    async with serving(EnvironmentDefinition("slow", SlowToBegin)) as episodes:
        await open_episode(episodes, "slow")
    assert len(said(caplog, "reset()")) == 1


@pytest.mark.parametrize(("runtime", "name"), [("inline", "wait"), ("thread", "block"), ("process", "block")])
async def test_what_does_not_block_the_loop_is_not_named(
    runtime: RuntimeKind, name: str, caplog: pytest.LogCaptureFixture
):
    async with serving(EnvironmentDefinition("slow", Slow), runtime=runtime) as episodes:
        assert (await (await open_episode(episodes, "slow")).call(name, {})).observation.text == "done"
    assert said(caplog, f"tool {name!r}") == []
