"""The load generator: callers that each play their own episode, in a separate process from the server.

It reads jobs as lines of JSON from standard input and answers each with a line on standard output. It checks every
answer of a server, so that fast errors do not look like good results.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import aiohttp

from envport.bench.channel_load import ChannelCaller, ChannelLine
from envport.bench.http_load import LoadCaller
from envport.bench.jobs import BadAnswer, Job, Sample
from envport.bench.processes import cpu_seconds
from envport.bench.rollout_callers import RolloutCaller, rollout_caller
from envport.bench.targets import TARGETS
from envport.errors import EnvportError

__all__ = ["main"]

CallerT = TypeVar("CallerT")


def _callers(job: Job) -> Sequence[LoadCaller | ChannelCaller]:
    """Callers without an episode."""
    target = TARGETS[job.target]
    if target.era == "channel":
        line = ChannelLine(job.url, target.path)
        return [ChannelCaller(target, line) for _ in range(job.callers)]
    return [LoadCaller(target, job.url) for _ in range(job.callers)]


async def _measure(
    pid: int, callers: Sequence[CallerT], each: int, work: Callable[[CallerT], Awaitable[Any]]
) -> Sample:
    latencies: list[float] = []

    async def repeat(caller: CallerT) -> None:
        for _ in range(each):
            start = time.perf_counter()
            await work(caller)
            latencies.append(time.perf_counter() - start)

    start, cpu, own = time.perf_counter(), cpu_seconds(pid), time.process_time()
    await asyncio.gather(*map(repeat, callers))
    seconds, cpu, own = time.perf_counter() - start, cpu_seconds(pid) - cpu, time.process_time() - own
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")
    return Sample(len(latencies), seconds, cpu, own, cuts[49], cuts[98])


async def _warmed_up(job: Job, callers: Sequence[CallerT], work: Callable[[CallerT], Awaitable[Any]]) -> Sample:
    """Measure after a warm-up: the first calls of a connection and of an episode cost more than the others."""
    await _measure(job.pid, callers, 2, work)
    return await _measure(job.pid, callers, max(1, job.count // job.callers), work)


async def _call(caller: LoadCaller | ChannelCaller | RolloutCaller) -> None:
    await caller.call()


async def _hang_up(callers: Sequence[LoadCaller | ChannelCaller]) -> None:
    await asyncio.gather(*(caller.hang_up() for caller in callers))


async def _calls(job: Job) -> Sample:
    callers = _callers(job)
    await asyncio.gather(*(caller.begin() for caller in callers))
    sample = await _warmed_up(job, callers, _call)
    await asyncio.gather(*(caller.end() for caller in callers))
    await _hang_up(callers)
    return sample


async def _rollouts(job: Job) -> Sample:
    made = rollout_caller()
    callers = [made(job.url) for _ in range(job.callers)]
    await asyncio.gather(*(caller.begin() for caller in callers))
    sample = await _warmed_up(job, callers, _call)
    await asyncio.gather(*(caller.end() for caller in callers))
    return sample


async def _opens(job: Job) -> Sample:
    callers = _callers(job)

    async def open_and_close(caller: LoadCaller | ChannelCaller) -> None:
        await caller.close_episode(await caller.open_episode())

    sample = await _warmed_up(job, callers, open_and_close)
    await _hang_up(callers)
    return sample


async def _hold(job: Job) -> Sample:
    target = TARGETS[job.target]
    callers = [LoadCaller(target, job.url) for _ in range(job.callers)]

    async def begin_and_leave(_: LoadCaller) -> None:
        player = await LoadCaller(target, job.url).begin()
        await player.call()
        await player.hang_up()

    sample = await _measure(job.pid, callers, max(1, job.count // job.callers), begin_and_leave)
    await _hang_up(callers)
    return sample


_staying: list[LoadCaller] = []


async def _stay(job: Job) -> Sample:
    callers = [LoadCaller(TARGETS[job.target], job.url) for _ in range(job.callers)]
    await asyncio.gather(*(caller.begin() for caller in callers))
    sample = await _measure(job.pid, callers, max(1, job.count // job.callers), LoadCaller.call)
    _staying.extend(callers)
    return sample


_crowd: deque[str] = deque()


async def _gather(job: Job) -> Sample:
    callers = _callers(job)

    async def open_and_call(caller: LoadCaller | ChannelCaller) -> None:
        handle = await caller.open_episode()
        caller.sit_down(handle)
        await caller.call()
        _crowd.append(handle)

    sample = await _measure(job.pid, callers, max(1, job.count // job.callers), open_and_call)
    await _hang_up(callers)
    return sample


async def _tour(job: Job) -> Sample:
    callers = _callers(job)

    async def call_the_next(caller: LoadCaller | ChannelCaller) -> None:
        # Out of the queue meanwhile, so that no other caller calls it too. The next tour goes on where this one ends.
        handle = _crowd.popleft()
        caller.sit_down(handle)
        await caller.call()
        _crowd.append(handle)

    sample = await _warmed_up(job, callers, call_the_next)
    await _hang_up(callers)
    return sample


_KINDS = {
    "calls": _calls,
    "opens": _opens,
    "hold": _hold,
    "stay": _stay,
    "gather": _gather,
    "tour": _tour,
    "rollouts": _rollouts,
}


async def main() -> None:
    """Do jobs until standard input ends."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        job = Job(**json.loads(line))
        try:
            answer = asdict(await _KINDS[job.kind](job))
        except (BadAnswer, EnvportError, aiohttp.ClientError, TimeoutError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
