"""What it costs to run environments in processes of their own, and what that protects from.

python -m envport.bench.runtimes [--quick] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import repeat
from statistics import fmean, median, quantiles
from typing import Any, Literal

import uvloop

from envport.bench.processes import below, cpu_seconds, memory_kb, require_linux
from envport.bench.workloads import SandboxedWorkload, Workload
from envport.definition import EnvironmentDefinition
from envport.environment import RuntimeKind
from envport.episodes import Episode, Episodes, Limits, OpenRequest
from envport.errors import EpisodeFailed
from envport.types import Choice

__all__ = ["Figure", "RuntimesPlan", "measure"]

_PAYLOAD = "x" * 200
_NICENESS = 10


@dataclass(frozen=True, slots=True)
class RuntimesPlan:
    """The size of each measurement.

    Attributes:
        calls: Calls per round, to measure the cost of one.
        rounds: Rounds of calls. The runtimes alternate.
        opens: Episodes that are opened one after another.
        many: Episodes that are open while one dies.
        busy: Episodes that are all called at the same time.
        seconds: How long these episodes are called.
    """

    calls: int = 5_000
    rounds: int = 5
    opens: int = 100
    many: int = 1_000
    busy: int = 256
    seconds: float = 5.0


QUICK = RuntimesPlan(calls=500, rounds=3, opens=10, many=24, busy=16, seconds=0.5)


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value.

    Attributes:
        what: What was measured.
        value: The value.
        unit: The unit of the value.
        target: The value to reach, if there is one.
        at_least: Whether the target is a lower bound.
    """

    what: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; `None` if there is no target."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target

    def __str__(self) -> str:
        bound = "" if self.target is None else f"{'>=' if self.at_least else '<='} {self.target:g}"
        verdict = {None: "", True: "reached", False: "MISSED"}[self.reached]
        return f"{self.what:<68} {self.value:>11,.2f} {self.unit:<9} {bound:<9} {verdict}".rstrip()


class _Table:
    """Episodes of the workload on one runtime, for one measurement."""

    def __init__(self, runtime: RuntimeKind, cls: type[Workload] = Workload, **limits: Any):
        spec = EnvironmentDefinition("workload", cls)
        self.episodes = Episodes({spec.name: spec}, Limits(**limits), runtime=runtime)

    async def open(self, count: int) -> list[Episode]:
        """Open episodes, some at a time."""
        turn = asyncio.Semaphore(16)

        async def one() -> Episode:
            async with turn:
                return await self.episodes.open_episode(OpenRequest("workload", "bench", Choice(seed=1)))

        return list(await asyncio.gather(*(one() for _ in range(count))))


def _pid(episode: Episode) -> int:
    return int(episode.first_observation.text)


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100)[98] if len(values) > 1 else values[0]


async def cost(plan: RuntimesPlan) -> list[Figure]:
    """CPU time of a call in gateway and process together, divided by that of an inline call."""
    inline, process = _Table("inline"), _Table("process")
    async with inline.episodes.run(), process.episodes.run():
        (here,), (there,) = await inline.open(1), await process.open(1)
        costs: dict[str, list[tuple[float, float, float]]] = {"inline": [], "process": []}
        for _ in range(plan.rounds):
            costs["inline"].append(await _cost_of(here, plan.calls))
            costs["process"].append(await _cost_of(there, plan.calls))
    own, gateway, elsewhere, wall = (
        median(cost[0] for cost in costs["inline"]),
        median(cost[0] for cost in costs["process"]),
        median(cost[1] for cost in costs["process"]),
        median(cost[2] for cost in costs["process"]),
    )
    return [
        Figure("inline: CPU of a call", own, "us"),
        Figure("process: CPU of a call in the gateway", gateway, "us"),
        Figure("process: CPU of a call in the episode's process", elsewhere, "us"),
        Figure("process over inline: CPU of a call in all", gateway + elsewhere - own, "us", 60),
        Figure("process: time of a call, one after the other", wall, "us"),
    ]


async def _cost_of(episode: Episode, calls: int) -> tuple[float, float, float]:
    pid = _pid(episode)
    before = time.process_time(), cpu_seconds(pid) if pid != os.getpid() else 0.0, time.perf_counter()
    for _ in repeat(None, calls):
        await episode.call("echo", {"message": _PAYLOAD})
    after = time.process_time(), cpu_seconds(pid) if pid != os.getpid() else 0.0, time.perf_counter()
    gateway, elsewhere, wall = ((end - begin) / calls * 1e6 for begin, end in zip(before, after, strict=True))
    return gateway, elsewhere, wall


async def opening(plan: RuntimesPlan) -> list[Figure]:
    """Time and memory for opening an episode."""
    table = _Table("process")
    async with table.episodes.run():
        await table.open(1)
        before, times, opened = memory_kb(os.getpid()), list[float](), list[Episode]()
        for _ in range(plan.opens):
            begin = time.perf_counter()
            opened.extend(await table.open(1))
            times.append(time.perf_counter() - begin)
            await opened[-1].call("echo", {"message": _PAYLOAD})
        own = fmean(memory_kb(_pid(episode)) for episode in opened)
        here = (memory_kb(os.getpid()) - before) / plan.opens
    return [
        Figure("process: time to open an episode, median", median(times) * 1e3, "ms", 5),
        Figure("process: time to open an episode, p99", _p99(times) * 1e3, "ms"),
        Figure("process: memory of an open episode (USS, the gateway's included)", (own + here) * 1024 / 1e6, "MB", 3),
    ]


async def sandboxing(plan: RuntimesPlan) -> list[Figure]:
    """The same in a sandbox for each episode, and in the other way to make one: bubblewrap and a start of Python."""
    table = _Table("process", SandboxedWorkload)
    async with table.episodes.run():
        await table.open(1)
        before, times, opened = _memory_below(), list[float](), list[Episode]()
        for _ in range(plan.opens):
            begin = time.perf_counter()
            opened.extend(await table.open(1))
            times.append(time.perf_counter() - begin)
            await opened[-1].call("echo", {"message": _PAYLOAD})
        own = (_memory_below() - before) / plan.opens
        begin = time.perf_counter()
        for _ in range(plan.calls):
            await opened[0].call("echo", {"message": _PAYLOAD})
        call = (time.perf_counter() - begin) / plan.calls
    return [
        Figure("sandbox: time to open an episode, median", median(times) * 1e3, "ms"),
        Figure("sandbox: time to open an episode, p99", _p99(times) * 1e3, "ms"),
        Figure("sandbox: memory of an open episode (USS)", own * 1024 / 1e6, "MB"),
        Figure("sandbox: time of a call, one after the other", call * 1e6, "us"),
        *(await asyncio.to_thread(_bubblewrap, min(plan.opens, 20)) if shutil.which("bwrap") else ()),
    ]


def _memory_below() -> float:
    """The memory of all processes below this one, in KiB."""
    return sum(memory_kb(pid) for pid in below(os.getpid()))


def _bubblewrap(opens: int) -> list[Figure]:
    """What an episode would cost if bubblewrap started a Python for it, which then loads the environment."""
    source = "import envport.bench.workloads, envport.runtimes.zygote, signal; print(flush=True); signal.pause()"
    options = ["--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc"]
    times, own = list[float](), list[float]()
    for _ in range(opens):
        before, begin = _memory_below(), time.perf_counter()
        with subprocess.Popen(
            ["bwrap", *options, "--dev", "/dev", sys.executable, "-P", "-c", source],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            times.append(time.perf_counter() - begin)
            own.append(_memory_below() - before)
            process.kill()
    return [
        Figure("bubblewrap and an import: time to open an episode, median", median(times) * 1e3, "ms"),
        Figure("bubblewrap and an import: memory of an open episode (USS)", median(own) * 1024 / 1e6, "MB"),
    ]


async def faults(plan: RuntimesPlan) -> list[Figure]:
    """How soon the death of one episode during a call is detected, and how it affects the other episodes."""
    figures: list[Figure] = []
    table = _Table("process", max_episodes=plan.many + 8)
    async with table.episodes.run():
        everyone = await table.open(plan.many)
        for of in ("SIGKILL", "SIGSEGV", "exit"):
            (victim,) = await table.open(1)
            seconds = await _until_failed(victim, "die", {"of": of})
            figures.append(Figure(f"1 of {plan.many:,} dies of {of}: known after", seconds * 1e3, "ms", 100))
            assert victim.outcome is not None
            assert (of if of != "exit" else "exit code") in victim.outcome.message
        answers = await asyncio.gather(*(episode.call("score", {}) for episode in everyone))
        lost = sum(answer.reward != 1.0 for answer in answers)
        figures.append(Figure("others lost by that", lost, "episodes", 0))
    return figures


async def _until_failed(episode: Episode, tool: str, arguments: dict[str, Any]) -> float:
    begin = time.perf_counter()
    try:
        await episode.call(tool, arguments)
    except EpisodeFailed:
        return time.perf_counter() - begin
    raise AssertionError(f"{tool} did not fail")


async def deadlines(plan: RuntimesPlan) -> list[Figure]:
    """How long after its deadline an endless call is stopped, and how it affects the other episodes."""
    figures: list[Figure] = []
    limit = min(1.0, plan.seconds)
    table = _Table("process", call_seconds=limit)
    async with table.episodes.run():
        (neighbour,) = await table.open(1)
        figures.append(Figure("a neighbour's calls, in peace: p99", await _p99_for(neighbour, limit), "ms"))
        for hold_gil, how in ((False, "loops"), (True, "holds the GIL")):
            (victim,) = await table.open(1)
            failing = asyncio.create_task(_until_failed(victim, "hang", {"hold_gil": hold_gil}))
            p99 = await _p99_for(neighbour, limit)
            figures.append(
                Figure(f"a call that {how}: ended after its deadline", (await failing - limit) * 1e3, "ms", 200)
            )
            figures.append(Figure(f"a neighbour's calls meanwhile: p99 ({how})", p99, "ms"))
    table = _Table("process", memory_mb=64)
    async with table.episodes.run():
        (victim,) = await table.open(1)
        seconds = await _until_failed(victim, "eat", {"megabytes": 256})
        figures.append(Figure("memory blow-up: ended after", seconds * 1e3, "ms", 500))
    return figures


async def _p99_for(episode: Episode, seconds: float) -> float:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        await episode.call("echo", {"message": _PAYLOAD})
        times.append(time.perf_counter() - begin)
        await asyncio.sleep(0.001)
    return _p99(times) * 1e3


async def busy(plan: RuntimesPlan) -> list[Figure]:
    """Throughput and event loop lag while all episodes compute, and while all block."""
    table = _Table("process")
    async with table.episodes.run():
        episodes = await table.open(plan.busy)
        before = await asyncio.to_thread(_cores_give, 0.005, plan.seconds)
        burnt, delay = await _drive(episodes, "burn", 0.005, plan.seconds)
        given = (before + await asyncio.to_thread(_cores_give, 0.005, plan.seconds)) / 2
        waited, waiting_delay = await _drive(episodes, "block", 0.020, plan.seconds)
    count = f"{plan.busy} episodes"
    return [
        Figure(f"5 ms of CPU a call, {count}: calls", burnt, "calls/s"),
        Figure(f"5 ms of CPU a call, {count}: of what the cores give", 100 * burnt / given, "%", 90, True),
        Figure(f"5 ms of CPU a call, {count}: event loop late by, p99", delay, "ms", 20),
        Figure(f"20 ms of waiting a call, {count}: calls", waited, "calls/s"),
        Figure(f"20 ms of waiting a call, {count}: of the ideal", 100 * waited * 0.020 / plan.busy, "%", 90, True),
        Figure(f"20 ms of waiting a call, {count}: event loop late by, p99", waiting_delay, "ms"),
    ]


async def _drive(
    episodes: list[Episode], tool: Literal["burn", "block"], each: float, seconds: float
) -> tuple[float, float]:
    """Calls per second, and the 99th percentile of the event loop's lag in ms."""
    late: list[float] = []
    end = time.perf_counter() + seconds

    async def play(episode: Episode) -> int:
        count = 0
        while time.perf_counter() < end:
            await episode.call(tool, {"seconds": each})
            count += 1
        return count

    async def watch() -> None:
        while (begin := time.perf_counter()) < end:
            await asyncio.sleep(0.005)
            late.append(time.perf_counter() - begin - 0.005)

    begin = time.perf_counter()
    watching = asyncio.create_task(watch())
    count = sum(await asyncio.gather(*map(play, episodes)))
    took = time.perf_counter() - begin
    await watching
    return count / took, _p99(late) * 1e3


def _cores_give(each: float, seconds: float) -> float:
    """Work items per second that one process per core does without a gateway."""
    cores = len(os.sched_getaffinity(0))
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        return sum(pool.starmap(_pieces, [(each, seconds)] * cores))


def _pieces(each: float, seconds: float) -> float:
    os.nice(_NICENESS)
    workload, count = Workload(), 0
    begin = time.perf_counter()
    while time.perf_counter() < begin + seconds:
        workload.burn(each)
        count += 1
    return count / (time.perf_counter() - begin)


Part = Callable[[RuntimesPlan], Awaitable[list[Figure]]]
PARTS: tuple[Part, ...] = (cost, opening, sandboxing, faults, deadlines, busy)


def measure(plan: RuntimesPlan, parts: Iterable[Part] = PARTS) -> Iterable[Figure]:
    """Run the measurements one after another, each in a new event loop."""
    require_linux()
    for part in parts:
        yield from uvloop.run(_await(part(plan)))


async def _await(part: Awaitable[list[Figure]]) -> list[Figure]:
    return await part


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m envport.bench.runtimes", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little of everything, to see that it works")
    parser.add_argument("--json", action="store_true", help="an object on each line")
    parser.add_argument("--part", choices=[part.__name__ for part in PARTS], help="only this part")
    asked = parser.parse_args()
    # The faults are intended, so do not log them.
    logging.getLogger("envport.episodes").setLevel("CRITICAL")
    parts = [part for part in PARTS if asked.part in (None, part.__name__)]
    for figure in measure(QUICK if asked.quick else RuntimesPlan(), parts):
        print(json.dumps(asdict(figure) | {"reached": figure.reached}) if asked.json else figure, flush=True)


if __name__ == "__main__":
    main()
