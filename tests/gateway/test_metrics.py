"""`GET /metrics`: what operators of a training run see of a gateway."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from environments import SECRET, Gate, Short, Stubborn, Tracked
from harness import ERAS, Era, RunningGateway, connect, running
from patience import patient
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from runtime_environments import Faulty

from envport import AsyncClient, Client, Environment, Task, tool
from envport.clock import ManualClock
from envport.cluster.host import Host
from envport.cluster.messages import HostMessage
from envport.cluster.settings import ClusterSettings
from envport.cluster.table import ClusterTable
from envport.episodes import Episodes, Limits, OpenRequest, WatchedTable
from envport.errors import AtCapacity, EpisodeFailed, error_from_code
from envport.metrics import Metrics
from envport.registry import EnvironmentDefinition
from envport.runtimes import ProgressSink

TRACKED = EnvironmentDefinition("tracked", Tracked)
SHORT = EnvironmentDefinition("short", Short)
GATE = EnvironmentDefinition("gate", Gate)
FAULTY = EnvironmentDefinition("faulty", Faulty)


class Blocking(Environment):
    """Blocks the event loop, which an inline environment must not."""

    runtime = "inline"

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "begun"

    @tool
    def block(self, seconds: float) -> str:
        """Block."""
        time.sleep(seconds)
        return "blocked"


class Held(Environment):
    """Is being reset until the test says so."""

    runtime = "thread"
    begun = threading.Event()
    let_go = threading.Event()

    def reset(self, *, seed: int, task: Task | None) -> str:
        type(self).begun.set()
        assert type(self).let_go.wait(patient(30))
        return "begun"

    @tool
    def nothing(self) -> None:
        """Do nothing."""


class Scrape:
    """What a gateway told of itself."""

    def __init__(self, gateway: RunningGateway):
        answer = httpx2.get(f"{gateway.url}/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        self.text = answer.text
        self.families = list(text_string_to_metric_families(self.text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def all(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """The values of a metric that are not zero, by labels."""
        found = [sample for sample in self.samples if sample.name == name]
        assert found, f"there is no {name}"
        return {tuple(it.labels[label] for label in labels): it.value for it in found if it.value}

    def one(self, name: str, **labels: str) -> float:
        """The one value with these labels."""
        (value,) = (it.value for it in self.samples if it.name == name and it.labels.items() >= labels.items())
        return value


async def eventually(gateway: RunningGateway, holds: Callable[[Scrape], bool]) -> Scrape:
    """A scrape of which something holds, once one does."""
    async with asyncio.timeout(patient(30)):
        while not holds(scrape := await asyncio.to_thread(Scrape, gateway)):
            await asyncio.to_thread(threading.Event().wait, 0.01)
    return scrape


def test_live_episodes_are_told_by_environment_and_status():
    with running(TRACKED, SHORT) as gateway, Client(gateway.url) as control:
        before = Scrape(gateway).one("envport_episodes", environment="short", status="running")
        opened = [control.open(name) for name in ("tracked", "tracked", "short")]
        labels = ("environment", "status")
        assert before == 0
        assert Scrape(gateway).all("envport_episodes", *labels) == {
            ("tracked", "running"): 2,
            ("short", "running"): 1,
        }
        for episode in opened[1:]:
            control.close_episode(episode.episode_id)
        assert Scrape(gateway).all("envport_episodes", *labels) == {("tracked", "running"): 1}


async def test_an_episode_that_is_being_opened_shows_as_such():
    Held.begun.clear()
    Held.let_go.clear()
    with running(EnvironmentDefinition("held", Held)) as gateway:
        async with AsyncClient(gateway.url) as control:
            opening = asyncio.create_task(control.open("held"))
            assert await asyncio.to_thread(Held.begun.wait, 30)
            scrape = await asyncio.to_thread(Scrape, gateway)
            assert scrape.all("envport_episodes", "environment", "status") == {("held", "opening"): 1}
            Held.let_go.set()
            await opening


async def call(url: str, era: Era, tool: str, **arguments: Any) -> None:
    async with connect(url, era) as client:
        await client.call_tool(tool, arguments)


@pytest.mark.parametrize("era", ERAS)
async def test_ends_are_counted_by_how_they_came(era: Era):
    async def closed(control: AsyncClient, episode_id: str, url: str) -> None:
        await control.close_episode(episode_id)

    def calls(tool: str, **arguments: Any) -> Callable[[AsyncClient, str, str], Awaitable[None]]:
        async def play(control: AsyncClient, episode_id: str, url: str) -> None:
            await call(url, era, tool, **arguments)

        return play

    ends: list[tuple[Callable[[AsyncClient, str, str], Awaitable[None]], tuple[str, ...]]] = [
        (closed, ("closed", "closed", "none")),
        (calls("finish", reward=1.0), ("terminated", "terminated", "none")),
        (calls("cut"), ("truncated", "truncated", "none")),
        (calls("boom"), ("failed", "environment_error", "environment")),
    ]
    with running(TRACKED) as gateway:
        async with AsyncClient(gateway.url) as control:
            for times, (end, _) in enumerate(ends, 1):
                for _ in range(times):
                    opened = await control.open("tracked")
                    await end(control, opened.episode_id, opened.mcp_url)
        scrape = Scrape(gateway)
    assert scrape.all("envport_episodes_ended_total", "environment", "status", "reason", "fault") == {
        ("tracked", *end): times for times, (_, end) in enumerate(ends, 1)
    }


def test_an_episode_that_expires_is_counted_and_one_that_is_over_is_counted_once():
    clock = ManualClock()
    with running(SHORT, clock=clock, limits=Limits(idle_seconds=60)) as gateway, Client(gateway.url) as control:
        control.open("short")
        gateway.run(lambda: clock.advance(100))
        closed = control.open("short").episode_id
        for _ in range(2):
            control.close_episode(closed)
        ended = Scrape(gateway).all("envport_episodes_ended_total", "status", "reason", "fault")
    assert ended == {("expired", "expired", "none"): 1, ("closed", "closed", "none"): 1}


@pytest.mark.parametrize("era", ERAS)
async def test_calls_are_counted_by_their_result(era: Era):
    with running(TRACKED) as gateway:
        async with AsyncClient(gateway.url) as control:
            opened = await control.open("tracked")
        async with connect(opened.mcp_url, era) as client:
            for tool_name, arguments in (
                ("step", {}),
                ("step", {}),
                ("refuse", {}),
                ("finish", {"reward": "much"}),
                ("boom", {}),
                ("step", {}),
            ):
                await client.call_tool(tool_name, arguments)
        scrape = Scrape(gateway)
    assert scrape.all("envport_call_duration_seconds_count", "environment", "result") == {
        ("tracked", "ok"): 2,
        ("tracked", "tool_error"): 1,
        ("tracked", "invalid_arguments"): 1,
        ("tracked", "episode_failed"): 1,
        ("tracked", "episode_over"): 1,
    }


async def test_a_call_whose_caller_went_away_is_counted_as_such():
    Gate.rearm()
    metrics = Metrics()
    episodes = Episodes({"gate": GATE}, observer=metrics.observer)
    table = WatchedTable(episodes, metrics.observer)
    async with table.run():
        found = table.find((await table.open(OpenRequest("gate", "me"))).handle, "me")
        first = asyncio.create_task(table.call(found, "wait", {}))
        assert await asyncio.to_thread(Gate.entered.acquire, timeout=patient(30))
        second = asyncio.create_task(table.call(found, "wait", {}))
        # It begins to wait for its turn.
        await anyio.wait_all_tasks_blocked()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        Gate.opened.set()
        await first
    told = (await metrics.expose(""))[0].decode()
    for result in ("ok", "cancelled"):
        assert f'envport_call_duration_seconds_count{{environment="gate",result="{result}"}} 1.0' in told


def test_opens_and_resets_are_counted_by_their_result():
    with running(TRACKED, EnvironmentDefinition("stubborn", Stubborn)) as gateway, Client(gateway.url) as control:
        opened = control.open("tracked")
        control.reset(opened.episode_id)
        with pytest.raises(EpisodeFailed):
            control.open("stubborn")
        httpx2.post(f"{gateway.url}/episodes", json={"environment": "nowhere"})
        httpx2.post(f"{gateway.url}/episodes", json={"environment": "tracked", "task": 3})
        scrape = Scrape(gateway)
    assert scrape.all("envport_open_duration_seconds_count", "environment", "result") == {
        ("tracked", "ok"): 1,
        ("tracked", "invalid_request"): 1,
        ("stubborn", "episode_failed"): 1,
    }
    assert scrape.all("envport_reset_duration_seconds_count", "environment", "result") == {("tracked", "ok"): 1}
    assert "nowhere" not in scrape.text


async def test_how_long_a_call_took_is_in_its_bucket():
    Gate.rearm()
    clock = ManualClock()
    with running(GATE, clock=clock) as gateway:
        async with AsyncClient(gateway.url) as control:
            opened = await control.open("gate")
        playing = asyncio.create_task(call(opened.mcp_url, "modern", "wait"))
        assert await asyncio.to_thread(Gate.entered.acquire, timeout=patient(30))
        await asyncio.to_thread(gateway.run, lambda: clock.advance(45))
        Gate.opened.set()
        await playing
        scrape = Scrape(gateway)
    name, labels = "envport_call_duration_seconds", {"environment": "gate", "result": "ok"}
    assert scrape.one(f"{name}_sum", **labels) == 45
    counts = {limit: scrape.one(f"{name}_bucket", le=limit, **labels) for limit in ("0.001", "30.0", "60.0", "600.0")}
    assert counts == {"0.001": 0, "30.0": 0, "60.0": 1, "600.0": 1}


async def test_admission_shows_places_waiters_and_refusals_by_limit():
    limits = Limits(max_episodes=3, max_episodes_per_principal=2, wait_seconds=0)
    with running(TRACKED, limits=limits) as gateway, Client(gateway.url) as control:
        for _ in range(2):
            control.open("tracked")
        with pytest.raises(AtCapacity):
            control.open("tracked")
        scrape = Scrape(gateway)
        assert scrape.one("envport_admission_held") == 2
        assert scrape.one("envport_admission_capacity") == 3
        assert scrape.all("envport_admission_refusals_total", "limit") == {("principal",): 1}
        assert scrape.one("envport_open_duration_seconds_count", result="at_capacity") == 1
    with running(TRACKED, limits=Limits(max_episodes=1, wait_seconds=60)) as gateway:
        async with AsyncClient(gateway.url) as control:
            first = await control.open("tracked")
            waiting = asyncio.create_task(control.open("tracked"))
            await eventually(gateway, lambda it: it.one("envport_admission_waiting") == 1)
            await control.close_episode(first.episode_id)
            await waiting
            assert Scrape(gateway).one("envport_admission_waiting") == 0
    with running(TRACKED, limits=Limits(max_episodes=1, wait_seconds=0)) as gateway, Client(gateway.url) as control:
        control.open("tracked")
        with pytest.raises(AtCapacity):
            control.open("tracked")
        assert Scrape(gateway).all("envport_admission_refusals_total", "limit") == {("total",): 1}


async def test_processes_of_episodes_are_told_with_their_memory():
    with running(FAULTY, TRACKED) as gateway:
        async with AsyncClient(gateway.url) as control:
            opened = [await control.open("faulty") for _ in range(3)]
            await control.open("tracked")
        idle = Scrape(gateway)
        assert idle.all("envport_runtime_workers", "runtime") == {("process",): 3, ("inline",): 1}
        assert idle.all("envport_runtime_busy_workers", "runtime") == {}
        assert set(idle.all("envport_runtime_memory_bytes", "runtime")) == {("process",)}
        await call(opened[0].mcp_url, "modern", "keep", megabytes=100)
        grown = Scrape(gateway).one("envport_runtime_memory_bytes") - idle.one("envport_runtime_memory_bytes")
        assert 95 * 2**20 < grown < 150 * 2**20
        sleeping = asyncio.create_task(call(opened[2].mcp_url, "modern", "sleep", seconds=patient(2.0)))
        await eventually(gateway, lambda it: it.one("envport_runtime_busy_workers", runtime="process") == 1)
        async with AsyncClient(gateway.url) as control:
            await control.close_episode(opened[1].episode_id)
        await eventually(gateway, lambda it: it.one("envport_runtime_workers", runtime="process") == 2)
        await sleeping


async def test_a_blocked_event_loop_shows():
    with running(EnvironmentDefinition("blocking", Blocking)) as gateway:
        async with AsyncClient(gateway.url) as control:
            opened = await control.open("blocking")
        await eventually(gateway, lambda it: it.one("envport_event_loop_delay_seconds_count") > 1)
        before = Scrape(gateway).one("envport_event_loop_delay_seconds_sum")
        await call(opened.mcp_url, "modern", "block", seconds=1.5)
        # The sample that was due at its begin at the latest comes at its end.
        await eventually(gateway, lambda it: it.one("envport_event_loop_delay_seconds_sum") - before > 1.2)


def test_names_follow_the_conventions_and_labels_are_bounded():
    with running(TRACKED) as gateway, Client(gateway.url) as control:
        opened = control.open("tracked")
        asyncio.run(call(opened.mcp_url, "modern", "boom"))
        scrape = Scrape(gateway)
        other = httpx2.get(f"{gateway.url}/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert {family.name for family in openmetrics(other.text)} >= {"envport_episodes_ended", "envport_build"}
    ours = [it for it in scrape.families if it.name.startswith("envport_") and not it.name.endswith("_created")]
    assert {family.name.split("_")[0] for family in scrape.families} == {"envport", "process"}
    for family in ours:
        assert family.documentation.endswith("."), family.name
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
        if family.type == "counter":
            assert any(sample.name.endswith("_total") for sample in family.samples)
    assert {label for family in ours for sample in family.samples for label in sample.labels} <= {
        *("environment", "status", "reason", "fault", "result", "limit", "runtime", "le"),
        *("version", "python", "mcp"),
    }
    for secret in (opened.episode_id, SECRET, "local"):
        assert secret not in scrape.text


def test_each_gateway_counts_its_own():
    with running(TRACKED) as one, running(TRACKED) as other:
        with Client(one.url) as control:
            control.open("tracked")
        assert Scrape(one).one("envport_open_duration_seconds_count", environment="tracked", result="ok") == 1
        assert Scrape(one).one("envport_episodes", environment="tracked", status="running") == 1
        assert Scrape(other).one("envport_episodes", environment="tracked", status="running") == 0
        assert "envport_open_duration_seconds_count{" not in Scrape(other).text


def test_the_gate_is_in_front_of_the_metrics():
    with running(TRACKED) as gateway:
        url = f"{gateway.url}/metrics"
        assert httpx2.get(url, headers={"Host": "elsewhere.test"}).status_code == 421
        assert httpx2.get(url, headers={"Origin": "https://elsewhere.test"}).status_code == 403
        assert httpx2.post(url).status_code == 405


class HostHere:
    """A cluster of one machine, which is this one."""

    def __init__(self, settings: ClusterSettings):
        self.settings = settings
        self._host = Host("here", settings)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self._host.stop()

    def names(self) -> list[str]:
        return ["here"]

    async def ask(
        self,
        host: str,
        message: HostMessage[Any],
        life: str | None = None,
        progress: ProgressSink | None = None,
    ) -> Any:
        answer = await self._host.ask(message, life)
        if answer.error is not None:
            code, text, more = answer.error
            raise error_from_code(code, text, **more)
        return answer.value


def test_a_replica_of_a_cluster_tells_what_was_asked_of_it():
    settings = ClusterSettings.of([FAULTY], Limits(), None)
    with (
        running(FAULTY, table=ClusterTable([FAULTY], HostHere(settings))) as gateway,
        Client(gateway.url) as control,
    ):
        opened = control.open("faulty")
        asyncio.run(call(opened.mcp_url, "modern", "count"))
        asyncio.run(call(opened.mcp_url, "modern", "die", of="exit"))
        scrape = Scrape(gateway)
        assert scrape.all("envport_open_duration_seconds_count", "environment", "result") == {("faulty", "ok"): 1}
        assert scrape.all("envport_call_duration_seconds_count", "environment", "result") == {
            ("faulty", "ok"): 1,
            ("faulty", "episode_failed"): 1,
        }
        assert "envport_admission_held" in scrape.text
        # What only the machines know is left out, not told as zero.
        assert "envport_episodes{" not in scrape.text
        assert "envport_admission_capacity" not in scrape.text
