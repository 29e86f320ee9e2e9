"""A client that leaves: what it asked for and nobody receives does not go on, and does not stop others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from environments import Gate, Tracked
from harness import ERAS, Era, Raw, RunningGateway, running
from patience import patient

from envport import AsyncClient, Client, Task
from envport.episodes import Limits
from envport.registry import EnvironmentDefinition


class SlowToBegin(Gate):
    """Waits for the gate before it begins."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        self.wait()
        return "began"


@pytest.fixture
def served() -> Iterator[RunningGateway]:
    Gate.rearm()
    SlowToBegin.rearm()
    environments = {"gate": Gate, "slow": SlowToBegin, "tracked": Tracked}
    specs = [EnvironmentDefinition(name, cls) for name, cls in environments.items()]
    with running(*specs, limits=Limits(max_episodes_of={"tracked": 1}, wait_seconds=patient(0.2))) as gateway:
        yield gateway
    Gate.opened.set()
    SlowToBegin.opened.set()


@asynccontextmanager
async def sent(request: httpx2.Request) -> AsyncIterator[Callable[[], Any]]:
    """Send a request on a connection of its own. What is yielded closes the connection."""
    async with httpx2.AsyncClient(timeout=patient(30)) as http:
        answer = asyncio.create_task(http.send(request))

        async def leave() -> None:
            answer.cancel()
            with pytest.raises(asyncio.CancelledError):
                await answer

        yield leave


async def until(true: Callable[[], bool]) -> None:
    with anyio.fail_after(patient(10)):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def live(gateway: RunningGateway) -> int:
    return gateway.gateway.table.live


def opening(gateway: RunningGateway, environment: str) -> httpx2.Request:
    return httpx2.Request("POST", f"{gateway.url}/episodes", json={"environment": environment})


async def test_an_episode_whose_client_left_while_it_began_is_closed(served: RunningGateway):
    async with sent(opening(served, "slow")) as leave:
        assert await asyncio.to_thread(SlowToBegin.entered.acquire, timeout=patient(30))
        assert live(served) == 1
        await leave()
        await until(lambda: live(served) == 0)


async def test_a_client_that_left_takes_no_room_when_its_turn_comes(served: RunningGateway):
    async with AsyncClient(served.url) as control:
        held = await control.open("tracked")
        waiting = served.gateway.table._table._admission  # type: ignore[attr-defined]
        async with sent(opening(served, "tracked")) as leave:
            await until(lambda: waiting.waiting == 1)
            await leave()
            await until(lambda: waiting.waiting == 0)
        await control.close_episode(held.episode_id)
        again = await control.open("tracked")
        assert Tracked.alive == 1
        await control.close_episode(again.episode_id)


async def test_an_episode_that_nobody_receives_is_not_left_at_the_shared_address(served: RunningGateway):
    with Raw(f"{served.url}/environments/slow/mcp", "modern") as raw:
        request = raw.request("tools/call", {"name": "start_episode", "arguments": {}})
    async with sent(request) as leave:
        assert await asyncio.to_thread(SlowToBegin.entered.acquire, timeout=patient(30))
        await leave()
        await until(lambda: live(served) == 0)


class Playing:
    """Calls of one episode at the gate, each on a connection of its own."""

    def __init__(self, gateway: RunningGateway, era: Era):
        with Client(gateway.url) as control:
            self.opened = control.open("gate")
        self.episode = gateway.gateway.table._table.episode(self.opened.episode_id, "local")  # type: ignore[attr-defined]
        self.era: Era = era

    def request(self, call_id: str | None = None) -> httpx2.Request:
        meta = {"envport/call_id": call_id} if call_id is not None else {}
        with Raw(self.opened.mcp_url, self.era) as raw:
            return raw.request("tools/call", {"name": "wait", "arguments": {}, "_meta": meta})

    async def call(self, call_id: str | None = None) -> dict[str, Any]:
        async with httpx2.AsyncClient(timeout=patient(30)) as http:
            return (await http.send(self.request(call_id))).json()["result"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_queued_call_whose_client_left_is_never_played(served: RunningGateway, era: Era):
    playing = Playing(served, era)
    first = asyncio.create_task(playing.call())
    assert await asyncio.to_thread(Gate.entered.acquire, timeout=patient(30))
    async with sent(playing.request()) as leave:
        await until(lambda: playing.episode.waiting == 1)
        await leave()
        await until(lambda: playing.episode.waiting == 0)
    Gate.opened.set()
    assert (await first)["_meta"]["envport/step"] == 1
    assert (await playing.call())["_meta"]["envport/step"] == 2


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("waits_already", [True, False])
async def test_a_call_behind_one_whose_client_left_is_told_so_in_time(
    served: RunningGateway, era: Era, waits_already: bool
):
    playing = Playing(served, era)
    async with sent(playing.request("a")) as leave:
        assert await asyncio.to_thread(Gate.entered.acquire, timeout=patient(30))
        if not waits_already:
            await leave()
        second = asyncio.create_task(playing.call("b"))
        again = asyncio.create_task(playing.call("a"))
        await until(lambda: playing.episode.waiting == 2)
        if waits_already:
            await leave()
    told = await second
    assert (told["isError"], told["_meta"]["envport/error"]) == (True, "episode_busy")
    assert "of 'wait', is still running, although its caller has left. This call was not played" in str(told["content"])
    Gate.opened.set()
    # What ran was finished, and its answer waits under its id.
    assert ((await again)["_meta"]["envport/step"], (await playing.call("b"))["_meta"]["envport/step"]) == (1, 2)


async def test_a_call_behind_one_whose_client_waits_has_all_the_time_it_needs(served: RunningGateway):
    playing = Playing(served, "modern")
    first = asyncio.create_task(playing.call())
    assert await asyncio.to_thread(Gate.entered.acquire, timeout=patient(30))
    second = asyncio.create_task(playing.call())
    await until(lambda: playing.episode.waiting == 1)
    done, _ = await asyncio.wait({second}, timeout=patient(0.5))
    assert not done
    Gate.opened.set()
    assert [(await call)["_meta"]["envport/step"] for call in (first, second)] == [1, 2]
