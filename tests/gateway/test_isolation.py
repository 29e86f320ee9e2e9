"""What one environment, player or principal does is not felt by the others."""

import asyncio
from http.client import HTTPConnection
from typing import Any

import anyio
import httpx2
import pytest
from environments import Tracked
from harness import ERAS, Era, Raw, connect, running, texts
from opening import open_episode, start_over

from envport import AsyncClient, Client, Environment, Step, Task, tool
from envport.access import Access
from envport.episodes import Admission, Episodes, Limits
from envport.errors import AtCapacity, EpisodeFailed, InvalidAccess, InvalidArguments
from envport.registry import EnvironmentDefinition, load


class Panic(BaseException):
    """As compiled extensions raise it."""


class Wild(Environment):
    """Raises what is no ordinary error."""

    def __init__(self, where: str = "call"):
        self._where = where

    def reset(self, *, seed: int, task: Task | None) -> str:
        if self._where == "reset":
            raise Panic("in reset")
        return "wild"

    def close(self) -> None:
        if self._where == "close":
            raise Panic("in close")

    @tool
    def panic(self) -> str:
        """Panic."""
        raise Panic("in a tool")

    @tool
    async def cancel(self) -> str:
        """Await what was cancelled."""
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task
        return "never"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", ["panic", "cancel"])
async def test_what_no_except_clause_names_ends_its_own_episode_only(era: Era, name: str):
    with running(EnvironmentDefinition("wild", Wild), EnvironmentDefinition("tracked", Tracked)) as gateway:
        async with AsyncClient(gateway.url) as control:
            other, wild = await control.open("tracked"), await control.open("wild")
            async with connect(wild.mcp_url, era) as client:
                answer = await client.call_tool(name, {})
            assert answer.is_error
            assert "The environment failed" in texts(answer)[0]
            state = await control.episode(wild.episode_id)
            assert state.status == "failed"
            assert state.outcome is not None
            assert state.outcome.fault == "environment"
            (record,) = (await control.trajectory(wild.episode_id)).steps
            assert (record.tool, record.error) == (name, "episode_failed")
            assert (await control.episode(other.episode_id)).status == "running"
        assert httpx2.get(f"{gateway.url}/readyz").status_code == 200


def test_a_panic_in_reset_or_close_does_not_stop_the_gateway():
    specs = [EnvironmentDefinition(where, Wild, {"where": where}) for where in ("reset", "close")]
    with running(*specs) as gateway, Client(gateway.url) as control:
        with pytest.raises(EpisodeFailed):
            control.open("reset")
        assert control.close_episode(control.open("close").episode_id).status == "closed"
        gateway.run(anyio.wait_all_tasks_blocked)
        assert httpx2.get(f"{gateway.url}/readyz").json()["live"] == 0


async def test_a_modern_request_has_no_session_however_it_is_labelled():
    with running(load("counter")) as gateway:
        url = f"{gateway.url}/environments/counter/mcp"
        with Raw(url, "modern", {"Mcp-Session-Id": "invented"}) as raw:
            answer = raw.post("tools/call", {"name": "count", "arguments": {}})
        assert "start_episode" in answer.json()["result"]["content"][0]["text"]
        assert gateway.gateway.table.live == 0


@pytest.mark.parametrize("era", ERAS)
async def test_a_minted_token_opens_no_session(era: Era):
    with running(load("counter"), load("showcase")) as gateway, Client(gateway.url) as control:
        for environment in ("counter", "showcase"):
            opened = control.open(environment, mint_token=True)
            headers = {"Authorization": f"Bearer {opened.token}"}
            with Raw(opened.mcp_url, era, headers) as raw:
                assert raw.session is None
                assert raw.post("tools/list").status_code == 200
        opened = control.open("counter", mint_token=True)
        async with connect(opened.mcp_url, era, {"Authorization": f"Bearer {opened.token}"}) as client:
            assert [texts(await client.call_tool("count", {})) for _ in range(2)] == [["1"], ["2"]]


async def test_a_principal_at_its_own_limit_does_not_hold_up_the_others():
    admission = Admission(capacity=10, per_principal=1, max_waiting=1, wait_seconds=30)
    await admission.acquire("greedy", "play")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(admission.acquire, "greedy", "play")
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(AtCapacity):
            await admission.acquire("greedy", "play")
        await admission.acquire("modest", "play")
        assert admission.held == 2
        admission.release("greedy", "play")
    assert admission.held == 2


class Slow(Environment):
    """Ends when it is told to."""

    entered: Any = None
    leave: Any = None

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "slow"

    @tool
    async def end(self) -> Any:
        """End after a while."""
        type(self).entered.set()
        await type(self).leave.wait()
        return Step("over", terminated=True)


async def test_a_reset_that_waits_for_the_last_call_takes_a_place_of_its_own():
    Slow.entered, Slow.leave = anyio.Event(), anyio.Event()
    table = Episodes({"slow": EnvironmentDefinition("slow", Slow)}, Limits(max_episodes=1, wait_seconds=0))
    async with table.run():
        episode = await open_episode(table, "slow", "a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(episode.call, "end", {})
            await Slow.entered.wait()
            tasks.start_soon(start_over, table, episode)
            await anyio.wait_all_tasks_blocked()
            Slow.leave.set()
        assert (episode.status, table.live) == ("running", 1)
        with pytest.raises(AtCapacity):
            await open_episode(table, "slow", "a")


def test_headers_that_name_who_asks_must_not_come_twice():
    with running(EnvironmentDefinition("tracked", Tracked)) as gateway:
        for twice in (
            [("Host", "evil.example"), ("Host", "127.0.0.1")],
            [("Host", "127.0.0.1"), ("Origin", "http://evil.example"), ("Origin", "http://localhost")],
        ):
            connection = HTTPConnection("127.0.0.1", gateway.port)
            connection.putrequest("GET", "/environments", skip_host=True)
            for name, value in twice:
                connection.putheader(name, value)
            connection.endheaders()
            assert connection.getresponse().status == 400
            connection.close()
        assert httpx2.get(f"{gateway.url}/environments", headers={"Host": "[::1]evil.example"}).status_code == 421


def test_metadata_that_json_cannot_say_is_shown_as_well_as_can_be():
    task = Task(id="a", metadata={"image": object(), "text": "x\ud800"})
    shown = Task.model_validate_json(task.model_dump_json()).metadata
    assert shown["text"] == "x�"
    assert "object" in shown["image"]


def test_an_enormous_heap_of_mistakes_is_refused_in_short():
    spec = load("showcase").tools
    listed = next(tool for tool in spec.values() if any("items" in p for p in tool.input_schema["properties"].values()))
    name = next(key for key, schema in listed.input_schema["properties"].items() if "items" in schema)
    with pytest.raises(InvalidArguments) as refused:
        listed.bind({name: [{"no": "item"}] * 5_000})
    assert len(str(refused.value)) < 5_000


def test_tokens_that_could_never_work_are_refused():
    with pytest.raises(InvalidAccess, match="epk_"):
        Access.load({"ENVPORT_TOKEN": "epk_0123456789abcdef"})
