"""The measurements. Every target runs in every round, so that a disturbance of the machine affects all targets."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Literal

from envport.bench.jobs import Job, Sample
from envport.bench.processes import Process, memory_kb
from envport.bench.targets import TARGETS, BenchTarget, ServerKind
from envport.errors import GatewayUnreachable

__all__ = ["Held", "MeasuredRow", "MeasuringPlan", "Opens", "measure_calls", "measure_memory", "measure_opens"]

Say = Callable[[str], None]
"""Receives progress messages."""


@dataclass(frozen=True, slots=True)
class MeasuringPlan:
    """The targets and the size of each measurement.

    Attributes:
        targets: Names of the targets that are called.
        concurrency: Numbers of callers. Each caller has its own episode.
        calls: Calls of a target in a round.
        rounds: How often every target is measured.
        opens: Episodes opened to measure the rate of opening; 0 skips it.
        held: Episodes held open to measure their memory; 0 skips it.
    """

    targets: tuple[str, ...] = tuple(TARGETS)
    concurrency: tuple[int, ...] = (1, 16, 64, 256)
    calls: int = 1_500
    rounds: int = 9
    opens: int = 1_000
    held: int = 1_000


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """The cost of a target's calls; medians over the rounds.

    Attributes:
        target: Name of the target.
        callers: How many callers there were at a time.
        calls: Calls measured in all.
        calls_per_second: Calls per second.
        p50_ms: Median latency in milliseconds.
        p99_ms: 99th percentile of the latency in milliseconds.
        cpu_us: CPU time of the server per call, in microseconds.
        busy: Share of the time in which the server used a CPU. Below 1, it waited for its callers or for the machine.
        ratio: CPU per call divided by that of the floor of the same era: the median of the rounds' ratios.
        ratios: The ratio in each round.
    """

    target: str
    callers: int
    calls: int
    calls_per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    busy: float
    ratio: float | None
    ratios: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Opens:
    """The cost of opening an episode (`POST /episodes`).

    Attributes:
        count: Episodes opened.
        callers: How many callers there were at a time.
        per_second: Episodes opened per second.
        p50_ms: Median latency in milliseconds.
        p99_ms: 99th percentile of the latency in milliseconds.
        cpu_us: CPU time of the gateway per episode, in microseconds.
    """

    count: int
    callers: int
    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


@dataclass(frozen=True, slots=True)
class Held:
    """The memory of open episodes that were each called once.

    Attributes:
        target: The target they were called through. In the legacy era, each episode also has a session.
        count: How many were open.
        before_mb: Memory of the gateway without open episodes, after it has served some, in MB (USS).
        more_mb: Additional memory with the open episodes, in MB.
        each_kb: Additional memory per episode, in KB.
    """

    target: str
    count: int
    before_mb: float
    more_mb: float
    each_kb: float


class Bench:
    """The load generator, and the servers. A server is started when it is first needed."""

    def __init__(self, stack: ExitStack):
        self._stack = stack
        self._servers: dict[ServerKind, tuple[Process, str]] = {}
        self._load = stack.enter_context(Process("envport.bench.load"))

    def server(self, kind: ServerKind) -> tuple[Process, str]:
        """A server and its address."""
        if kind not in self._servers:
            process = self._stack.enter_context(Process("envport.bench.servers", kind))
            self._servers[kind] = process, process.read()
        return self._servers[kind]

    def job(self, kind: Literal["calls", "opens", "hold"], target: BenchTarget, callers: int, count: int) -> Sample:
        """Run a job.

        Raises:
            GatewayUnreachable: A server gave a wrong answer or none.
        """
        process, url = self.server(target.server)
        job = Job(kind, target.name, url, process.pid, callers, count)
        answer = json.loads(self._load.ask(json.dumps(asdict(job))))
        if "error" in answer:
            raise GatewayUnreachable(f"{target.title}: {answer['error']}")
        return Sample(**answer)


@contextmanager
def _bench() -> Generator[Bench]:
    with ExitStack() as stack:
        yield Bench(stack)


def measure_calls(plan: MeasuringPlan, say: Say) -> list[MeasuredRow]:
    """Measure the calls of every target, and of the floors that they are compared with."""
    return [row for callers in plan.concurrency for row in _measure_rounds(plan, callers, say)]


def _measure_rounds(plan: MeasuringPlan, callers: int, say: Say) -> list[MeasuredRow]:
    targets = _with_floors(plan.targets)
    samples: dict[str, list[Sample]] = {target.name: [] for target in targets}
    # Start new servers for each number of callers, so that no row depends on earlier ones.
    with _bench() as bench:
        for turn in range(plan.rounds):
            say(f"{callers} concurrent, round {turn + 1} of {plan.rounds}")
            # Alternate the order, so that a machine that slows down affects the first and the last target alike.
            for target in targets if turn % 2 == 0 else reversed(targets):
                samples[target.name].append(bench.job("calls", target, callers, plan.calls))
    return [_row(target, callers, samples) for target in targets]


def measure_opens(plan: MeasuringPlan, say: Say) -> Opens:
    """Measure the opening of episodes."""
    say("opening episodes")
    callers = min(16, max(plan.concurrency))
    with _bench() as bench:
        sample = bench.job("opens", TARGETS["episode-modern"], callers, plan.opens)
    return Opens(
        sample.count, callers, sample.count / sample.seconds, sample.p50 * 1e3, sample.p99 * 1e3, _cpu_us(sample)
    )


def measure_memory(plan: MeasuringPlan, target: BenchTarget, say: Say) -> Held:
    """Measure the memory of open episodes, in a new gateway."""
    say(f"holding {plan.held} episodes open ({target.title})")
    callers = min(10, plan.held)
    with _bench() as bench:
        process, _ = bench.server(target.server)
        bench.job("calls", target, callers, 20 * callers)
        before = memory_kb(process.pid)
        sample = bench.job("hold", target, callers, plan.held)
        more = memory_kb(process.pid) - before
    return Held(target.name, sample.count, before * 1024 / 1e6, more * 1024 / 1e6, more * 1024 / 1e3 / sample.count)


def _with_floors(names: Iterable[str]) -> list[BenchTarget]:
    wanted = set(names) | {floor for name in names if (floor := TARGETS[name].floor) is not None}
    return [target for name, target in TARGETS.items() if name in wanted]


def _row(target: BenchTarget, callers: int, samples: dict[str, list[Sample]]) -> MeasuredRow:
    own = samples[target.name]
    ratios: tuple[float, ...] = ()
    if target.floor is not None:
        floor = samples[target.floor]
        ratios = tuple(_cpu_us(mine) / _cpu_us(its) for mine, its in zip(own, floor, strict=True))
    return MeasuredRow(
        target=target.name,
        callers=callers,
        calls=sum(sample.count for sample in own),
        calls_per_second=median(sample.count / sample.seconds for sample in own),
        p50_ms=median(sample.p50 for sample in own) * 1e3,
        p99_ms=median(sample.p99 for sample in own) * 1e3,
        cpu_us=median(map(_cpu_us, own)),
        busy=median(sample.cpu_seconds / sample.seconds for sample in own),
        ratio=median(ratios) if ratios else None,
        ratios=ratios,
    )


def _cpu_us(sample: Sample) -> float:
    return sample.cpu_seconds / sample.count * 1e6
