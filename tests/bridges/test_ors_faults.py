"""What the Open Reward Standard can say of faults, of want of room, and of clients that leave."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import httpx2
import pytest
from harness import RunningGateway, running
from ors_wire import COUNT, TASK, events, live, post, until_none_live
from patience import patient

from envport import AsyncClient, Client, Environment, Step, Task, tool
from envport.episodes import Limits
from envport.errors import UpstreamLost
from envport.registry import EnvironmentDefinition, load
from envport_bridges.ors import ors_root_surface


class Upstream(Environment):
    """Uses a system that fails."""

    def reset(self, *, seed: int, task: Task | None) -> None:
        if seed == 13:
            raise UpstreamLost("the secret cause")

    @tool
    def ask(self) -> str:
        """Ask it."""
        raise UpstreamLost("the secret cause")


class Slow(Environment):
    """Opens when a test lets it."""

    runtime = "thread"
    entered: ClassVar[threading.Semaphore] = threading.Semaphore(0)
    opened: ClassVar[threading.Event] = threading.Event()

    @classmethod
    def rearm(cls) -> None:
        cls.entered, cls.opened = threading.Semaphore(0), threading.Event()

    def reset(self, *, seed: int, task: Task | None) -> None:
        type(self).entered.release()
        assert self.opened.wait(patient(30))

    @tool
    def nothing(self) -> str:
        """Do nothing."""
        return "done"


class Unscorable(Environment):
    """Its score fails."""

    def reset(self, *, seed: int, task: Task | None) -> None:
        return None

    @tool
    def end(self) -> Step[str]:
        """End it."""
        return Step("ended", reward=1.0, terminated=True)

    def score(self) -> float:
        raise RuntimeError("the secret cause")


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    made = (EnvironmentDefinition(cls.__name__.lower(), cls) for cls in (Upstream, Slow, Unscorable))
    with running(load("counter"), *made, root_surface=ors_root_surface) as serving:
        yield serving


def test_a_fault_of_the_infrastructure_is_tried_again_and_never_a_reward(gateway: RunningGateway):
    failed = post(gateway, "/create", "lost", {"task_spec": {"seed": 13}, "env_name": "upstream"})
    assert (failed.status_code, failed.headers["retry-after"]) == (503, "2")
    assert failed.json()["error"]["fault"] == "infrastructure"
    assert "x-backend-state" not in failed.headers
    post(gateway, "/create", "lost", {"task_spec": {"seed": 1}, "env_name": "upstream"})
    for _ in range(2):
        answer = events(post(gateway, "/call", "lost", {"name": "ask", "input": {}}))
        assert answer[1][0] == "error"
        assert "(fault: infrastructure)" in answer[1][1]
        assert "secret" not in answer[1][1]
    post(gateway, "/delete", "lost")


def test_an_episode_whose_score_fails_is_lost_at_each_call(gateway: RunningGateway):
    post(gateway, "/create", "unscored", {**TASK, "env_name": "unscorable"})
    for _ in range(2):
        answer = events(post(gateway, "/call", "unscored", {"name": "end", "input": {}}))
        assert answer[1][0] == "error"
        assert "(fault: environment)" in answer[1][1]
    post(gateway, "/delete", "unscored")


def test_want_of_room_is_waited_for_and_a_gateway_that_stops_is_not():
    with running(load("counter"), limits=Limits(1, wait_seconds=0), root_surface=ors_root_surface) as gateway:
        post(gateway, "/create", "one", TASK)
        full = post(gateway, "/create", "two", TASK)
        assert (full.status_code, full.headers["retry-after"], full.headers["x-backend-state"]) == (
            503,
            "1",
            "starting",
        )
        gateway.gateway.table.take_no_more()
        stops = post(gateway, "/create", "two", TASK)
        assert (stops.status_code, stops.headers["retry-after"]) == (503, "5")
        assert "x-backend-state" not in stops.headers


def test_a_session_that_is_created_twice_has_one_episode(gateway: RunningGateway):
    Slow.rearm()
    body = {**TASK, "env_name": "slow"}
    url, headers = f"{gateway.url}/create", {"X-Session-ID": "twice"}

    async def both() -> list[dict[str, Any]]:
        async with httpx2.AsyncClient(timeout=patient(30)) as client:
            tasks = [asyncio.create_task(client.post(url, headers=headers, json=body)) for _ in range(2)]
            await asyncio.to_thread(Slow.entered.acquire)
            waiting = await client.post(f"{gateway.url}/ping", headers=headers)
            assert (waiting.status_code, waiting.headers["x-backend-state"]) == (503, "starting")
            Slow.opened.set()
            return [(await task).json() for task in tasks]

    one, other = asyncio.run(both())
    assert one == other
    assert live(gateway, "slow") == 1
    changed = post(gateway, "/create", "twice", {**body, "index": 1})
    assert (changed.status_code, "already exists" in changed.json()["detail"]) == (400, True)
    post(gateway, "/delete", "twice")
    assert not live(gateway, "slow")


async def test_a_client_that_leaves_while_its_episode_opens_leaves_none(gateway: RunningGateway):
    Slow.rearm()
    request = json.dumps({**TASK, "env_name": "slow"}).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    head = f"POST /create HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Session-ID: left\r\nContent-Length: {len(request)}\r\n\r\n"
    writer.write(head.encode() + request)
    await asyncio.to_thread(Slow.entered.acquire)
    writer.close()
    async with AsyncClient(gateway.url) as control, asyncio.timeout(patient(20)):
        while any(info.status in ("opening", "running") for info in await control.episodes(limit=1)):
            Slow.opened.set()
    assert post(gateway, "/ping", "left").status_code == 404


def test_a_session_without_pings_is_deleted_and_a_ping_keeps_it():
    surface = partial(ors_root_surface, reap_seconds=0.5)
    with running(load("counter"), root_surface=surface, limits=Limits(idle_seconds=60)) as gateway:
        handle = post(gateway, "/create", "mine", TASK).json()["episode_id"]
        with Client(gateway.url) as control:
            until, pause = time.monotonic() + 1, threading.Event()
            while time.monotonic() < until:
                assert post(gateway, "/ping", "mine").status_code == 200
                # Its own client each time: without a pause, this would be a second of CPU time.
                pause.wait(0.02)
            assert control.episode(handle).status == "running"
            until_none_live(gateway, "counter")
            assert control.episode(handle).status == "closed"
        assert post(gateway, "/ping", "mine").status_code == 404


async def test_a_ping_keeps_the_episode_from_expiring_and_one_that_is_gone_ends_its_session(gateway: RunningGateway):
    handle = post(gateway, "/create", "kept", {**TASK, "env_name": "counter"}).json()["episode_id"]
    async with AsyncClient(gateway.url) as control, asyncio.timeout(patient(20)):

        async def expires_in() -> float:
            seconds = (await control.episode(handle)).expires_in
            assert seconds is not None
            return seconds

        last = await expires_in()
        while await expires_in() <= last:
            assert (await asyncio.to_thread(post, gateway, "/ping", "kept")).status_code == 200
        await control.close_episode(handle)
    # The client takes 410 for the end of its session.
    for path, body in (("/ping", None), ("/call", COUNT)):
        assert post(gateway, path, "kept", body).status_code == 410
    assert httpx2.get(f"{gateway.url}/prompt", headers={"X-Session-ID": "kept"}).status_code == 410
