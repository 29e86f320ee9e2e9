"""The measurements. Every target runs in every round, so that a disturbance of the machine affects all targets."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from envport.bench.gateways import start_gateway
from envport.bench.jobs import Job, JobKind, Sample
from envport.bench.processes import Process, memory_kb, python_module
from envport.bench.profiles import GatewayProfile
from envport.bench.targets import TARGETS, BenchTarget, ServerKind
from envport.errors import GatewayUnreachable

__all__ = [
    "Bench",
    "Growth",
    "Held",
    "MeasuredRow",
    "MeasuringPlan",
    "Opens",
    "measure_calls",
    "measure_growth",
    "measure_memory",
    "measure_opens",
]

Say = Callable[[str], None]
"""Receives progress messages."""

# The trainer's way and the agent's.
_WAYS = ("channel", "episode-modern")
_FEW = 10
# At most so many episodes are opened at once.
_OPENING = 16
_GROWTH_ROUNDS = 3
_UNTIL_THE_END = 24 * 3_600.0


@dataclass(frozen=True, slots=True)
class MeasuringPlan:
    """The targets and the size of each measurement.

    Attributes:
        targets: Names of the targets that are called.
        concurrency: Numbers of callers. Each caller has its own episode.
        calls: Calls of a target in a round.
        rounds: How often every target is measured.
        opens: Episodes opened and closed in a round; 0 skips it.
        held: Episodes held open to measure their memory; 0 skips it.
        grown: Episodes that are open while calls are compared with those of a gateway with few; 0 skips it.
        against: Name of the peer whose steps are compared with ours, if any.
        gateway: Settings of the measured gateway, if it is to have any.
    """

    targets: tuple[str, ...] = tuple(TARGETS)
    concurrency: tuple[int, ...] = (1, 16, 64, 256)
    calls: int = 1_500
    rounds: int = 9
    opens: int = 500
    held: int = 1_000
    grown: int = 10_000
    against: str | None = None
    gateway: GatewayProfile | None = None


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
        tail: 99th percentile divided by the median.
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
    tail: float
    cpu_us: float
    busy: float
    ratio: float | None
    ratios: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Opens:
    """The cost of opening an episode and closing it again; medians over the rounds.

    Attributes:
        target: The target whose way was used: its protocol, and its calls to compare with.
        count: Episodes opened and closed in all.
        callers: How many callers there were at a time.
        per_second: Episodes opened and closed per second.
        p50_ms: Median latency of both together in milliseconds.
        p99_ms: 99th percentile of that latency in milliseconds.
        cpu_us: CPU time of the gateway per episode, in microseconds.
        ratio: That time divided by the CPU time of a call of the same way: the median of the rounds' ratios.
        ratios: The ratio in each round.
    """

    target: str
    count: int
    callers: int
    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    ratio: float
    ratios: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Growth:
    """The cost of a call while many episodes are open, beside that while few are; medians over the rounds.

    All open episodes are called in turn.

    Attributes:
        target: The target they were called through.
        few: Open episodes of the gateway with few.
        many: Open episodes of the other gateway.
        callers: How many callers there were at a time.
        calls: Calls measured in all, of each gateway.
        few_us: CPU time of the gateway with few per call, in microseconds.
        many_us: CPU time of the other gateway per call, in microseconds.
        ratio: The second divided by the first: the median of the rounds' ratios.
        ratios: The ratio in each round.
    """

    target: str
    few: int
    many: int
    callers: int
    calls: int
    few_us: float
    many_us: float
    ratio: float
    ratios: tuple[float, ...]


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
    """The load generator, and the servers. A server is started when it is first needed.

    Args:
        stack: What ends their processes.
        limits: Limits of the gateway that differ from the defaults.
        gateway: Settings of the gateway, if it is to have any.
        interpreter: What runs the servers' modules.
    """

    def __init__(
        self,
        stack: ExitStack,
        limits: Mapping[str, Any] | None = None,
        gateway: GatewayProfile | None = None,
        interpreter: Sequence[str] = python_module(),
    ):
        self._stack = stack
        self._limits = dict(limits or {})
        self._gateway = gateway
        self._interpreter = interpreter
        self._servers: dict[ServerKind, tuple[Process, str]] = {}
        self._load = stack.enter_context(Process("envport.bench.load"))

    def server(self, kind: ServerKind) -> tuple[Process, str]:
        """A server and its address."""
        if kind == "gateway" and kind not in self._servers:
            self._servers[kind] = start_gateway(self._stack, self._limits, self._gateway, self._interpreter)
        if kind not in self._servers:
            floor = Process("envport.bench.servers", kind, interpreter=self._interpreter)
            self._servers[kind] = self._stack.enter_context(floor), floor.read()
        return self._servers[kind]

    def job(self, kind: JobKind, target: BenchTarget, callers: int, count: int) -> Sample:
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
def _bench(plan: MeasuringPlan, **limits: Any) -> Generator[Bench]:
    with ExitStack() as stack:
        yield Bench(stack, limits, plan.gateway)


def measure_calls(plan: MeasuringPlan, say: Say) -> list[MeasuredRow]:
    """Measure the calls of every target, and of the floors that they are compared with."""
    return [row for callers in plan.concurrency for row in _measure_rounds(plan, callers, say)]


def _measure_rounds(plan: MeasuringPlan, callers: int, say: Say) -> list[MeasuredRow]:
    targets = _with_floors(plan.targets)
    samples: dict[str, list[Sample]] = {target.name: [] for target in targets}
    # Start new servers for each number of callers, so that no row depends on earlier ones.
    with _bench(plan) as bench:
        for turn in range(plan.rounds):
            say(f"{callers} concurrent, round {turn + 1} of {plan.rounds}")
            # Alternate the order, so that a machine that slows down affects the first and the last target alike.
            for target in targets if turn % 2 == 0 else reversed(targets):
                samples[target.name].append(bench.job("calls", target, callers, plan.calls))
    return [_row(target, callers, samples) for target in targets]


def measure_opens(plan: MeasuringPlan, say: Say) -> list[Opens]:
    """Measure opening and closing episodes, over the channel and over HTTP, with few callers and with several."""
    crowds = sorted({min(_OPENING, most) for most in (min(plan.concurrency), max(plan.concurrency))})
    samples: dict[tuple[str, int], list[tuple[Sample, Sample]]] = defaultdict(list)
    with _bench(plan) as bench:
        for turn in range(plan.rounds):
            say(f"opening and closing episodes, round {turn + 1} of {plan.rounds}")
            for callers in crowds:
                for name in _WAYS:
                    call = bench.job("calls", TARGETS[name], callers, plan.calls)
                    opened = bench.job("opens", TARGETS[name], callers, plan.opens)
                    samples[name, callers].append((opened, call))
    return [_opens(name, callers, found) for (name, callers), found in samples.items()]


def _opens(name: str, callers: int, samples: list[tuple[Sample, Sample]]) -> Opens:
    ratios = tuple(_cpu_us(opened) / _cpu_us(call) for opened, call in samples)
    opened = [sample for sample, _ in samples]
    return Opens(
        target=name,
        count=sum(sample.count for sample in opened),
        callers=callers,
        per_second=median(sample.count / sample.seconds for sample in opened),
        p50_ms=median(sample.p50 for sample in opened) * 1e3,
        p99_ms=median(sample.p99 for sample in opened) * 1e3,
        cpu_us=median(map(_cpu_us, opened)),
        ratio=median(ratios),
        ratios=ratios,
    )


def measure_growth(plan: MeasuringPlan, say: Say) -> list[Growth]:
    """Measure calls at a gateway with few open episodes and at one with many, in the same rounds."""
    few, many = min(_FEW, plan.grown), plan.grown
    samples: dict[str, list[tuple[Sample, Sample]]] = {name: [] for name in _WAYS}
    # Many short rounds: what else the machine does then disturbs both alike. All of them together call each episode.
    rounds = _GROWTH_ROUNDS * plan.rounds
    calls = max(plan.calls, few, plan.grown // rounds)
    with (
        _bench(plan, max_episodes=many, idle_seconds=_UNTIL_THE_END) as small,
        _bench(plan, max_episodes=many, idle_seconds=_UNTIL_THE_END) as large,
    ):
        for bench, count in ((small, few), (large, many)):
            say(f"opening {count:,} episodes")
            bench.job("gather", TARGETS["channel"], few, count)
        for turn in range(rounds):
            say(f"calls while {few} and {many:,} episodes are open, round {turn + 1} of {rounds}")
            for name in _WAYS:
                first, second = (small, large) if turn % 2 == 0 else (large, small)
                pair = [bench.job("tour", TARGETS[name], few, calls) for bench in (first, second)]
                samples[name].append((pair[0], pair[1]) if turn % 2 == 0 else (pair[1], pair[0]))
    return [_growth(name, few, many, found) for name, found in samples.items()]


def _growth(name: str, few: int, many: int, samples: list[tuple[Sample, Sample]]) -> Growth:
    ratios = tuple(_cpu_us(large) / _cpu_us(small) for small, large in samples)
    return Growth(
        target=name,
        few=few,
        many=many,
        callers=few,
        calls=sum(large.count for _, large in samples),
        few_us=median(_cpu_us(small) for small, _ in samples),
        many_us=median(_cpu_us(large) for _, large in samples),
        ratio=median(ratios),
        ratios=ratios,
    )


def measure_memory(plan: MeasuringPlan, target: BenchTarget, say: Say) -> Held:
    """Measure the memory of open episodes, in a new gateway."""
    say(f"holding {plan.held} episodes open ({target.title})")
    callers = min(10, plan.held)
    with _bench(plan) as bench:
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
        tail=median(sample.p99 / sample.p50 for sample in own),
        cpu_us=median(map(_cpu_us, own)),
        busy=median(sample.cpu_seconds / sample.seconds for sample in own),
        ratio=median(ratios) if ratios else None,
        ratios=ratios,
    )


def _cpu_us(sample: Sample) -> float:
    return sample.cpu_seconds / sample.count * 1e6
