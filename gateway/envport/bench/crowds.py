"""What a gateway does with many: open episodes, clients that are killed, more requests than it has room for.

python -m envport.bench.crowds [--quick] [--part open|killed|flood] [--json]

The gateway is a process of its own, reached over HTTP. Exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from statistics import median, quantiles
from typing import Any

import uvloop

from envport.bench.jobs import BadAnswer, Job, Refused
from envport.bench.processes import Process, memory_kb, require_linux
from envport.bench.runtimes import Figure
from envport.bench.targets import TARGETS
from envport.errors import MissingExtra

if find_spec("aiohttp") is None:
    raise MissingExtra("the bench's load generator", "bench")

import aiohttp

from envport.bench.http_load import LoadCaller

__all__ = ["CrowdsPlan", "measure"]

_FAULTS = (BadAnswer, aiohttp.ClientError, OSError, TimeoutError)
# How late the gateway may expire an idle episode.
_GRACE_SECONDS = 5.0
# Warm-up before a round, as a share of it: clients connect, and the episodes they play do not count.
_GATHERING = 0.3


@dataclass(frozen=True, slots=True)
class CrowdsPlan:
    """The size of each measurement.

    Attributes:
        held: Episodes that are open at the same time.
        callers: Connections over which these episodes are called.
        seconds: Duration of each measurement of calls.
        killed: Clients that are killed, each with a connection, a session and an episode.
        processes: Processes that run these clients.
        idle_seconds: Idle limit of the gateway whose clients are killed.
        capacity: Capacity of the flooded gateway, in episodes.
        flood: Clients for each unit of that capacity.
        calls: Calls in each episode of the flood.
        rounds: How often the gateway is measured with and without the flood, alternately.
    """

    held: int = 10_000
    callers: int = 64
    seconds: float = 15.0
    killed: int = 1_000
    processes: int = 20
    idle_seconds: float = 15.0
    capacity: int = 64
    flood: int = 4
    calls: int = 10
    rounds: int = 3


QUICK = CrowdsPlan(
    held=200, callers=8, seconds=1.0, killed=20, processes=2, idle_seconds=4.0, capacity=4, calls=5, rounds=1
)


class _Gateway:
    """A gateway in its own process."""

    def __init__(self, process: Process):
        self._process = process
        self.url = process.read()
        self.pid = process.pid

    def memory_mb(self) -> float:
        """Unique set size (USS) of its process: the memory that it shares with no other process."""
        return memory_kb(self.pid) * 1024 / 1e6


@contextmanager
def _gateway(**limits: Any) -> Generator[_Gateway]:
    with Process("envport.bench.servers", "gateway", json.dumps(limits)) as process:
        yield _Gateway(process)


@asynccontextmanager
async def _caller(gateway: _Gateway) -> AsyncGenerator[LoadCaller]:
    """A caller without an episode."""
    caller = LoadCaller(TARGETS["episode-modern"], gateway.url)
    try:
        yield caller
    finally:
        await caller.hang_up()


@asynccontextmanager
async def _callers(gateway: _Gateway, count: int) -> AsyncGenerator[list[LoadCaller]]:
    """Callers, each with an episode."""
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(_caller(gateway)) for _ in range(count)]
        yield await asyncio.gather(*(caller.begin() for caller in callers))


@dataclass(slots=True)
class _Calls:
    """The latencies and the errors of calls."""

    latencies: list[float] = field(default_factory=list[float])
    errors: list[str] = field(default_factory=list[str])

    async def one(self, caller: LoadCaller, since: float) -> None:
        """Call the tool, and record the latency since the given time."""
        try:
            await caller.call()
        except _FAULTS as error:
            self._note(error)
        self.latencies.append(time.perf_counter() - since)

    def _note(self, error: Exception) -> None:
        if not self.errors:
            print(f"first error: {type(error).__name__}: {error}", file=sys.stderr)
        self.errors.append(str(error))

    def percentile(self, of_hundred: int) -> float:
        """A percentile of the latency, in ms."""
        return 1e3 * quantiles(self.latencies, n=100)[of_hundred - 1] if len(self.latencies) > 1 else math.nan


async def open_(plan: CrowdsPlan) -> list[Figure]:
    """Measure many open episodes that are all played: errors, memory, and latency at half of the maximum load."""
    with _gateway(max_episodes=plan.held + plan.callers, idle_seconds=3_600) as gateway:
        async with _callers(gateway, plan.callers) as callers:
            await _closed_loop(callers, [caller.episode for caller in callers], 0.2 * plan.seconds)
            before, begin = gateway.memory_mb(), time.perf_counter()
            handles = await _open_all(callers, plan.held)
            opening = time.perf_counter() - begin
            most = await _closed_loop(callers, handles, plan.seconds)
            rate = len(most.latencies) / plan.seconds
            half = await _at_rate(callers, handles, rate / 2, plan.seconds)
            memory = gateway.memory_mb()
            live = (await callers[0].readiness())["live"] - plan.callers
    count = f"{plan.held:,} open episodes"
    return [
        Figure(f"{count}: opened", plan.held / opening, "a second"),
        Figure(f"{count}: still live at the end", live, "episodes", plan.held, True),
        Figure(f"{count}: calls, {plan.callers} at a time", rate, "calls/s"),
        Figure(f"{count}: calls at half of that rate", len(half.latencies) / plan.seconds, "calls/s"),
        Figure(f"{count}: errors", len(most.errors) + len(half.errors), "calls", 0),
        Figure(f"{count}: latency at half of the rate, p50", half.percentile(50), "ms"),
        Figure(f"{count}: latency at half of the rate, p99", half.percentile(99), "ms"),
        Figure(f"{count}: memory of the gateway (USS)", memory, "MB"),
        Figure(f"{count}: memory of each", 1e3 * (memory - before) / plan.held, "KB"),
    ]


async def _open_all(callers: list[LoadCaller], count: int) -> list[str]:
    numbers = iter(range(count))

    async def some(caller: LoadCaller) -> list[str]:
        return [await caller.open_episode() for _ in numbers]

    return [handle for handles in await asyncio.gather(*map(some, callers)) for handle in handles]


async def _closed_loop(callers: list[LoadCaller], handles: list[str], seconds: float) -> _Calls:
    """Each caller calls one episode after another, as soon as it has the previous answer."""
    calls, end = _Calls(), time.perf_counter() + seconds

    async def play(caller: LoadCaller, own: list[str]) -> None:
        while True:
            for handle in own:
                if (now := time.perf_counter()) >= end:
                    return
                caller.sit_down(handle)
                await calls.one(caller, now)

    shares = [handles[number :: len(callers)] for number in range(len(callers))]
    await asyncio.gather(*map(play, callers, shares))
    return calls


async def _at_rate(callers: list[LoadCaller], handles: list[str], rate: float, seconds: float) -> _Calls:
    """Start calls at a fixed rate, even if earlier calls are unanswered. Latency includes waiting for a connection."""
    calls, free = _Calls(), asyncio.Queue[LoadCaller]()
    for caller in callers:
        free.put_nowait(caller)

    async def play(handle: str, due: float) -> None:
        caller = await free.get()
        caller.sit_down(handle)
        await calls.one(caller, due)
        free.put_nowait(caller)

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(rate * seconds)):
            due = begin + number / rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            tasks.create_task(play(handles[number % len(handles)], due))
    return calls


async def killed(plan: CrowdsPlan) -> list[Figure]:
    """Kill clients by SIGKILL, and measure what is left of their episodes and of the memory that these used.

    The reference for memory is the gateway after a first group of clients of the same size was killed and forgotten,
    not a fresh gateway. Python keeps some of the first group's memory for reuse: its allocator returns memory by the
    megabyte, and only if the whole megabyte is free.
    """
    with _gateway(max_episodes=2 * plan.killed, idle_seconds=plan.idle_seconds) as gateway:
        async with _caller(gateway) as watcher:
            fresh = gateway.memory_mb()
            await asyncio.to_thread(_crowd, gateway, plan)
            before = await _after_forgetting(gateway, watcher, plan)
            await asyncio.to_thread(_crowd, gateway, plan)
            begin, at_most = time.perf_counter(), gateway.memory_mb()
            live = (await watcher.readiness())["live"]
            while (left := (await watcher.readiness())["live"]) > 0:
                if time.perf_counter() - begin > plan.idle_seconds + _GRACE_SECONDS:
                    break
                await asyncio.sleep(0.05)
            late = time.perf_counter() - begin - plan.idle_seconds
            after = await _after_forgetting(gateway, watcher, plan)
    count = f"{plan.killed:,} clients killed"
    return [
        Figure(f"{count}: their live episodes right after", live, "episodes", plan.killed, True),
        Figure(f"{count}: live episodes {_GRACE_SECONDS:g} s after the idle limit", left, "episodes", 0),
        Figure(f"{count}: the last one expired after the idle limit", late, "s", _GRACE_SECONDS),
        Figure(f"{count}: memory of the gateway, fresh (USS)", fresh, "MB"),
        Figure(f"{count}: memory, when a first crowd is forgotten", before, "MB"),
        Figure(f"{count}: memory, right after the second", at_most, "MB"),
        Figure(f"{count}: memory, when that is forgotten too", after, "MB"),
        Figure(f"{count}: memory then, of that before", 100 * after / before, "%", 110),
    ]


def _crowd(gateway: _Gateway, plan: CrowdsPlan) -> None:
    """Start all clients at once, in separate processes, and kill these processes."""
    each = plan.killed // plan.processes
    job = Job("stay", "episode-legacy", gateway.url, gateway.pid, each, 2 * each)
    with ExitStack() as stack:
        processes = [stack.enter_context(Process("envport.bench.load")) for _ in range(plan.processes)]
        for process in processes:
            answer = json.loads(process.ask(json.dumps(asdict(job))))
            if "error" in answer:
                raise RuntimeError(answer["error"])
        for process in processes:
            process.kill()


async def _after_forgetting(gateway: _Gateway, watcher: LoadCaller, plan: CrowdsPlan) -> float:
    """The gateway's memory after twice the idle limit, when it has forgotten the ended episodes."""
    await asyncio.sleep(2.2 * plan.idle_seconds + 1)
    await watcher.readiness()
    return gateway.memory_mb()


@dataclass(slots=True)
class _Flood:
    """The results of the requests for episodes."""

    played_in_time: int = 0
    refused: int = 0
    unfinished: int = 0
    seconds: list[float] = field(default_factory=list[float])
    errors: list[str] = field(default_factory=list[str])

    async def client(self, caller: LoadCaller, calls: int, counted: float, end: float) -> None:
        """Open, play and close episodes in a loop. After a refusal, wait as long as the gateway says."""
        while (begin := time.perf_counter()) < end:
            try:
                handle = await caller.open_episode()
            except Refused as refusal:
                self.refused += 1
                await asyncio.sleep(refusal.retry_after)
                continue
            except _FAULTS as error:
                self._note(error)
                return
            try:
                await self._play(caller, handle, calls)
                # Count only episodes that end after all clients have connected and before the round ends.
                self.played_in_time += counted < time.perf_counter() < end
                self.seconds.append(time.perf_counter() - begin)
            except _FAULTS as error:
                self._note(error)
                return

    async def _play(self, caller: LoadCaller, handle: str, calls: int) -> None:
        self.unfinished += 1
        caller.sit_down(handle)
        for _ in range(calls):
            await caller.call()
        state = await caller.close_episode(handle)
        if (state["status"], state["outcome"]["reason"], state["steps"]) == ("closed", "closed", calls):
            self.unfinished -= 1

    def _note(self, error: Exception) -> None:
        if not self.errors:
            print(f"first error: {type(error).__name__}: {error}", file=sys.stderr)
        self.errors.append(str(error))


async def flood(plan: CrowdsPlan) -> list[Figure]:
    """Send more requests than there is capacity. The gateway must refuse as documented, and play as many episodes."""
    limits = {"max_episodes": plan.capacity, "max_waiting": plan.capacity, "wait_seconds": 1.0}
    with _gateway(**limits) as gateway:
        await _flooded(_Flood(), gateway, plan, 1)
        alone, crowded = _Flood(), _Flood()
        for _ in range(plan.rounds):
            await _flooded(alone, gateway, plan, 1)
            await _flooded(crowded, gateway, plan, plan.flood)
        async with _caller(gateway) as caller:
            live = (await caller.readiness())["live"]
    who = f"{plan.flood} clients for each of {plan.capacity} places"
    return [
        Figure(
            f"1 client for each of {plan.capacity} places: episodes played",
            alone.played_in_time / plan.seconds,
            "a second",
        ),
        Figure(f"{who}: episodes played", crowded.played_in_time / plan.seconds, "a second"),
        Figure(
            f"{who}: of what is played without the crowd",
            100 * crowded.played_in_time / max(1, alone.played_in_time),
            "%",
            80,
            True,
        ),
        Figure(f"{who}: refused with when to try again", crowded.refused, "requests"),
        Figure(f"{who}: any other error", len(alone.errors) + len(crowded.errors), "requests", 0),
        Figure(f"{who}: accepted and not played to their end", alone.unfinished + crowded.unfinished, "episodes", 0),
        Figure(f"{who}: live when all have gone", live, "episodes", 0),
        Figure(f"{who}: from request to end, median", 1e3 * median(crowded.seconds or [math.nan]), "ms"),
    ]


async def _flooded(flood: _Flood, gateway: _Gateway, plan: CrowdsPlan, times: int) -> None:
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(_caller(gateway)) for _ in range(times * plan.capacity)]
        counted = time.perf_counter() + _GATHERING * plan.seconds / plan.rounds
        end = counted + plan.seconds / plan.rounds
        await asyncio.gather(*(flood.client(caller, plan.calls, counted, end) for caller in callers))


PARTS: dict[str, Callable[[CrowdsPlan], Awaitable[list[Figure]]]] = {"open": open_, "killed": killed, "flood": flood}


def measure(plan: CrowdsPlan, parts: Iterable[str]) -> Iterable[Figure]:
    """Run the measurements one after another.

    Raises:
        ConfigurationError: This is not Linux, so the resource use of other processes cannot be read.
    """
    require_linux()
    for part in parts:
        yield from uvloop.run(_await(PARTS[part](plan)))


async def _await(part: Awaitable[list[Figure]]) -> list[Figure]:
    return await part


def main() -> int:
    """Measure and print. Returns 1 if a target was missed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m envport.bench.crowds", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few of everything, to see that it works")
    parser.add_argument("--json", action="store_true", help="an object on each line")
    parser.add_argument("--part", choices=list(PARTS), help="only this part")
    asked = parser.parse_args()
    missed = False
    for figure in measure(QUICK if asked.quick else CrowdsPlan(), [asked.part] if asked.part else PARTS):
        print(json.dumps(asdict(figure) | {"reached": figure.reached}) if asked.json else figure, flush=True)
        missed = missed or figure.reached is False
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
