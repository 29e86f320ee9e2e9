"""An episode lists the tools of its task, in every way to reach it, in both eras and in every runtime."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

import anyio
import pytest
from harness import ERAS, Era, Raw, RunningGateway, Seat, Way, connect, running, seat, texts
from mcp import MCPError
from task_tools import INDEX_OF, TOOLS_OF, Toolbox

from envport import Client, Environment, Task
from envport.checker import check_environment
from envport.episodes import Episodes, OpenRequest
from envport.errors import EpisodeFailed, InvalidEnvironment, InvalidRequest, UnknownTool
from envport.registry import EnvironmentDefinition
from envport.types import Choice

TOOLBOX = EnvironmentDefinition("toolbox", Toolbox)


@pytest.fixture(scope="module", params=["inline", "process"])
def gateway(request: pytest.FixtureRequest) -> Iterator[RunningGateway]:
    with running(TOOLBOX, runtime=request.param) as serving:
        yield serving


def listed(answer: Any) -> str:
    """The tools of an answer, exactly as they were sent."""
    body = answer.text if answer.text.startswith("{") else answer.text.split("data: ", 1)[1]
    start = body.index('"tools":') + len('"tools":')
    _, end = json.JSONDecoder().raw_decode(body[start:])
    return body[start : start + end]


def written(listing: Any) -> str:
    return json.dumps(listing, separators=(",", ":"))


@pytest.mark.parametrize("task", TOOLS_OF)
def test_the_listing_is_the_tasks_in_the_same_bytes_for_everybody(gateway: RunningGateway, task: str):
    with Client(gateway.url) as control:
        opened = control.open("toolbox", task=INDEX_OF[task])
        page = control.tasks("toolbox", offset=INDEX_OF[task], limit=1)
        recorded = control.trajectory(opened.episode_id)
    known = page.listings[page.fingerprints[0]]
    assert [tool["name"] for tool in known] == TOOLS_OF[task]
    sent = set[str]()
    for era in ERAS:
        with Raw(opened.mcp_url, era) as player:
            sent.add(listed(player.post("tools/list")))
    assert sent == {written(known)} == {written(opened.tools)}
    assert opened.fingerprint == page.fingerprints[0] == recorded.fingerprint == recorded.episode.fingerprint
    assert (opened.fingerprint == TOOLBOX.fingerprint) == (task == "all")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", ["episode", "header"])
async def test_only_the_tasks_tools_can_be_called(gateway: RunningGateway, way: Way, era: Era):
    await only_the_tasks_tools(seat(gateway, way, era, "toolbox", task=INDEX_OF["own"]))


@pytest.mark.parametrize("era", ERAS)
async def test_only_the_tasks_tools_can_be_called_over_stdio(era: Era):
    nowhere: Any = None
    await only_the_tasks_tools(
        seat(nowhere, "stdio", era, "toolbox", task=INDEX_OF["own"], reference="task_tools:Toolbox")
    )


async def only_the_tasks_tools(seated: AbstractAsyncContextManager[Seat]):
    async with seated as player:
        assert [tool.name for tool in (await player.client.list_tools()).tools] == TOOLS_OF["own"]
        with pytest.raises(MCPError, match="Unknown tool: subtract"):
            await player.call("subtract", {"a": 1, "b": 2})
        assert texts(await player.call("peek"))[-1].endswith("peek {}")
        refused = await player.call("open", {"door": "green"})
        assert refused.is_error
        assert "red" in texts(refused)[0]
        assert texts(await player.call("open", {"door": "red"})) == ["open {'door': 'red'}"]
        assert texts(await player.call("add", {"a": 1, "b": 2})) == ["3"]


@pytest.mark.parametrize("era", ERAS)
async def test_the_shared_address_lists_what_is_declared(gateway: RunningGateway, era: Era):
    async with seat(gateway, "shared", era, "toolbox", task=INDEX_OF["own"]) as player:
        before = await player.client.list_tools()
        assert [tool.name for tool in before.tools] == ["start_episode", *TOOLS_OF["all"]]
        assert "this episode has: add, open." in player.opening[0].text
        refused = await player.call("subtract", {"a": 1, "b": 2})
        assert refused.is_error
        assert refused.meta["envport/error"] == "unknown_tool"
        assert "subtract is not one of this episode's tools: add, open, peek" in texts(refused)[0]
        with pytest.raises(MCPError, match="Unknown tool: peek"):
            await player.call("peek")
        refused = await player.call("open", {"door": "green"})
        assert refused.is_error
        assert texts(await player.call("open", {"door": "blue"})) == ["open {'door': 'blue'}"]
        assert await player.client.list_tools() == before


@pytest.mark.parametrize("era", ERAS)
async def test_a_reset_with_another_task_changes_the_tools(gateway: RunningGateway, era: Era):
    with Client(gateway.url) as control:
        opened = control.open("toolbox", task=INDEX_OF["one"])
        async with connect(opened.mcp_url, era) as player:
            assert [tool.name for tool in (await player.list_tools()).tools] == TOOLS_OF["one"]
            again = control.reset(opened.episode_id, task=INDEX_OF["some"])
            assert [tool.name for tool in (await player.list_tools()).tools] == TOOLS_OF["some"]
            assert texts(await player.call_tool("subtract", {"a": 3, "b": 2})) == ["1"]
        assert control.trajectory(opened.episode_id).fingerprint == again.fingerprint != opened.fingerprint
        assert control.reset(opened.episode_id).fingerprint == again.fingerprint


def test_a_task_of_ones_own_has_tools_too(gateway: RunningGateway):
    with Client(gateway.url) as control:
        opened = control.open("toolbox", task=Task(id="own"))
        assert opened.tools is not None
        assert [tool["name"] for tool in opened.tools] == TOOLS_OF["own"]


def test_an_environment_that_cannot_tell_the_tools_says_so(gateway: RunningGateway, caplog: pytest.LogCaptureFixture):
    with Client(gateway.url) as control, caplog.at_level(logging.ERROR):
        for index in range(3):
            with pytest.raises(EpisodeFailed, match="could not tell the tools of this task"):
                control.open("toolbox", split="broken", task=index)
        with pytest.raises(InvalidRequest, match=r"There is no such task\."):
            control.open("toolbox", split="broken", task=3)
        assert control.environment("toolbox").tools_vary
    assert "a secret of the environment" in caplog.text
    assert "names the tool 'multiply', which is not declared; declared: add, subtract, open" in caplog.text
    assert "returns no tools" in caplog.text


class Exiting(Toolbox):
    """Exits where it is asked for a task or its tools."""

    class Tasks(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            sys.exit("no such file")

    def splits(self) -> Any:
        return {**super().splits(), "gone": self.Tasks([1])}

    def tools_for(self, task: Task) -> Any:
        sys.exit("no such tool")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("asked", [{"task": 0}, {"task": 0, "split": "gone"}], ids=["tools", "task"])
async def test_an_environment_that_exits_where_it_tells_of_tasks_does_not_end_the_gateway(
    era: Era, asked: dict[str, Any]
):
    with running(EnvironmentDefinition("exiting", Exiting)) as serving:
        async with connect(f"{serving.url}/environments/exiting/mcp", era) as player:
            with contextlib.suppress(MCPError):
                assert (await player.call_tool("start_episode", asked)).is_error
            assert [tool.name for tool in (await player.list_tools()).tools] == ["start_episode", *TOOLS_OF["all"]]


class Short(Toolbox):
    """Ends after one call, whichever tool it is."""

    max_steps = 1


@pytest.mark.parametrize("era", ERAS)
async def test_the_step_limit_is_told_in_the_answer_of_a_tool_that_only_the_task_has(era: Era):
    with running(EnvironmentDefinition("short", Short)) as serving:
        async with seat(serving, "episode", era, "short", task=INDEX_OF["own"]) as player:
            result = await player.call("peek")
            assert not result.is_error
            assert result.meta["envport/outcome"] == "step_limit"
            assert "truncated at its limit of 1 step" in texts(result)[0]


class Slow(Toolbox):
    """Lets a call wait until the test goes on."""

    entered: ClassVar[anyio.Event]
    go_on: ClassVar[anyio.Event]

    async def use(self, name: str, arguments: dict[str, Any]) -> str:
        self.entered.set()
        await self.go_on.wait()
        return name


async def test_a_call_that_waits_while_the_episode_gets_another_task_is_refused_as_unknown():
    Slow.entered, Slow.go_on = anyio.Event(), anyio.Event()
    episodes = Episodes({"slow": EnvironmentDefinition("slow", Slow)})
    refused: list[str] = []

    async def call(tool: str) -> None:
        try:
            await episodes.call(found, tool, {})
        except UnknownTool as error:
            refused.append(str(error))

    async with episodes.run():
        opened = await episodes.open(OpenRequest("slow", "me", Choice(task=INDEX_OF["own"])))
        found = episodes.find(opened.handle, "me")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "peek")
            await Slow.entered.wait()
            tasks.start_soon(episodes.reset, found, Choice(task=INDEX_OF["one"]))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(call, "peek")
            await anyio.wait_all_tasks_blocked()
            Slow.go_on.set()
        assert refused == ["Unknown tool: peek"]
        info = await episodes.info(opened.handle, "me")
        assert (info.status, info.steps, info.task and info.task.id) == ("running", 0, "one")


class Same(Toolbox):
    """Lists all of its tools for every task."""

    tools_for = Environment.tools_for

    def splits(self) -> Any:
        return {"train": super().splits()["train"]}


def test_without_tools_of_tasks_nothing_is_said_of_them():
    with running(EnvironmentDefinition("same", Same)) as serving, Client(serving.url) as control:
        assert not control.environment("same").tools_vary
        page = control.tasks("same")
        assert (page.fingerprints, page.listings) == ([], {})
        assert control.open("same", task=0).tools is None


class TestChecker:
    def test_it_passes_what_is_well_made(self):
        class Good(Toolbox):
            """Two tasks."""

            def splits(self) -> Any:
                return {"train": super().splits()["train"]}

        report = check_environment(Good, another_process=False)
        assert not [finding for finding in report.findings if finding.check == "tools"]

    def test_it_reports_tools_that_cannot_be_told(self):
        with pytest.raises(InvalidEnvironment, match=r"\[tools\] the tools of task 'raises' cannot be told"):
            check_environment(Toolbox)

    def test_it_reports_tools_that_change(self):
        class Fickle(Toolbox):
            """Other tools each time."""

            asked = 0

            def splits(self) -> Any:
                return {"train": super().splits()["train"]}

            def tools_for(self, task: Task) -> Any:
                type(self).asked += 1
                return ["add"] if type(self).asked % 2 else ["subtract"]

        with pytest.raises(InvalidEnvironment, match="has other tools when they are asked for again"):
            check_environment(Fickle)
