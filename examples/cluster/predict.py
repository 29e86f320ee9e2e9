"""Measure a cluster of one host, predict one of two hosts from it, and measure that too.

    pip install "envport[ray,bench]"
    python examples/cluster/predict.py [--json costs.json]

Everything runs on this machine, as in run.py: a host for each Ray node, as many gateways, and callers over HTTP. Both
clusters are up at the same time and are called in turns, so that a disturbance of the machine meets both. A host has
as many episodes in one as in the other: the more calls an event loop has at a time, the less each costs. `--json`
writes the costs of one host, with one call at a time, for `python -m envport.bench.capacity --cluster costs.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from run import ray_nodes, replica

from envport.bench.capacity import ClusterCosts, RoleCosts, predict
from envport.bench.load import LoadCaller
from envport.bench.processes import below, cpu_seconds, memory_kb
from envport.bench.targets import TARGETS

ROLES = ("gateway", "host", "episode", "ray")
IDLE_SECONDS = 5.0
IDLE_CONNECTIONS = 200
# Calls of one caller, while nobody else calls.
ALONE = 500


@dataclass(frozen=True)
class Reading:
    """CPU seconds used so far: by role, by this process, and by the whole machine."""

    at: float
    roles: dict[str, float]
    callers: float
    machine: float

    def since(self, before: Reading) -> Reading:
        roles = {role: self.roles[role] - before.roles[role] for role in ROLES}
        return Reading(self.at - before.at, roles, self.callers - before.callers, self.machine - before.machine)


class Processes:
    """The processes of a cluster that this process has started, by role."""

    def __init__(self, gateways: Sequence[int]):
        self._gateways = set(gateways)

    def pids(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {role: [] for role in ROLES}
        everyone = below(os.getpid())
        hosts = [pid for pid in everyone if _command(pid).startswith("ray::Host")]
        episodes = {pid for host in hosts for pid in below(host)}
        for pid in everyone:
            role = "episode" if pid in episodes else "host" if pid in hosts else "ray"
            found["gateway" if pid in self._gateways else role].append(pid)
        return found

    def read(self) -> Reading:
        roles = {role: sum(map(_cpu, pids)) for role, pids in self.pids().items()}
        return Reading(time.perf_counter(), roles, time.process_time(), _machine_cpu())

    def memory_mb(self, *roles: str) -> float:
        pids = self.pids()
        return sum(_memory(pid) for role in roles for pid in pids[role]) * 1024 / 1e6

    def descriptors(self) -> int:
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in self.pids()["host"])

    def threads(self) -> int:
        return sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in self.pids()["episode"])


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8")
    return ""


def _cpu(pid: int) -> float:
    with suppress(OSError):
        return cpu_seconds(pid)
    return 0.0


def _memory(pid: int) -> float:
    with suppress(OSError):
        return memory_kb(pid)
    return 0.0


def _machine_cpu() -> float:
    """Seconds in which the cores did something, or were taken by another virtual machine (proc_stat(5))."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text("ascii").splitlines()[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Round:
    """What one round of calls cost.

    Attributes:
        call_us: CPU time of a call by role, above that of the idle cluster.
        total_us: CPU time of a call in all processes of the cluster.
        callers_us: CPU time of a call in the process of the callers.
        calls_per_second: Calls a second.
        cores: Cores that were left by everything else on the machine.
    """

    call_us: RoleCosts
    total_us: float
    callers_us: float
    calls_per_second: float
    cores: float


class Playing:
    """A cluster, and callers with an episode each."""

    def __init__(self, processes: Processes, urls: Sequence[str], episodes: int):
        self._processes, self._urls = processes, urls
        self._idle = dict.fromkeys(ROLES, 0.0)
        every = [LoadCaller(TARGETS["episode-modern"], urls[number % len(urls)]) for number in range(episodes + 16)]
        self._first, self._callers = every[:16], every[16:]

    async def begin(self) -> ClusterCosts:
        """Open the episodes; the costs of all but the calls."""
        look, count = self._processes, len(self._callers)
        # The first episode of a host starts its zygote.
        await self._each(self._first, 2)
        memory, files, threads = look.memory_mb("host", "episode"), look.descriptors(), look.threads()
        host_mb, before = look.memory_mb("host"), look.read()
        await asyncio.gather(*(caller.begin() for caller in self._callers))
        opening = look.read().since(before)
        await self._each(self._callers, 2, begin=False)
        own = (look.memory_mb("host", "episode") - memory) / count
        files, threads = look.descriptors() - files, look.threads() - threads
        before = look.read()
        await asyncio.sleep(IDLE_SECONDS)
        idle = look.read().since(before)
        self._idle = {role: idle.roles[role] / idle.at for role in ROLES}
        before = look.read()
        await self._each(self._callers[:1], ALONE, begin=False)
        alone = look.read().since(before)
        gateway_mb = look.memory_mb("gateway")
        return ClusterCosts(
            call_us=self._above_idle(alone, ALONE),
            open_us=self._above_idle(opening, count),
            idle_cores=RoleCosts(**self._idle),
            gateway_mb=gateway_mb / len(self._urls),
            host_mb=host_mb / len(self._urls),
            ray_mb=look.memory_mb("ray"),
            episode_mb=own,
            connection_kb=await self._connection_kb(),
            descriptors=files / count,
            processes=threads / count,
            opens_per_second=count / opening.at,
        )

    async def round(self, calls: int) -> Round:
        before = self._processes.read()
        await self._each(self._callers, calls, begin=False)
        used = self._processes.read().since(before)
        count, own = calls * len(self._callers), sum(used.roles.values())
        others = max(0.0, used.machine - own - used.callers)
        return Round(
            call_us=self._above_idle(used, count),
            total_us=1e6 * own / count,
            callers_us=1e6 * used.callers / count,
            calls_per_second=count / used.at,
            cores=len(os.sched_getaffinity(0)) - others / used.at,
        )

    async def end(self) -> None:
        callers = (*self._first, *self._callers)
        await asyncio.gather(*(caller.end() for caller in callers))
        await asyncio.gather(*(caller.hang_up() for caller in callers))

    @staticmethod
    async def _each(callers: Sequence[LoadCaller], calls: int, *, begin: bool = True) -> None:
        async def play(caller: LoadCaller) -> None:
            if begin:
                await caller.begin()
            for _ in range(calls):
                await caller.call()

        await asyncio.gather(*map(play, callers))

    def _above_idle(self, used: Reading, count: int) -> RoleCosts:
        return RoleCosts(**{r: 1e6 * max(0.0, used.roles[r] - self._idle[r] * used.at) / count for r in ROLES})

    async def _connection_kb(self) -> float:
        """Memory of a gateway for a client that is connected and does nothing, in KB."""
        before = self._processes.memory_mb("gateway")
        clients = [LoadCaller(TARGETS["episode-modern"], self._urls[0]) for _ in range(IDLE_CONNECTIONS)]
        await asyncio.gather(*(client.readiness() for client in clients))
        more = self._processes.memory_mb("gateway") - before
        await asyncio.gather(*(client.hang_up() for client in clients))
        return max(0.0, more) * 1e3 / IDLE_CONNECTIONS


async def _serve_rounds(processes: Processes, urls: Sequence[str], episodes: int, calls: int) -> None:
    playing = Playing(processes, urls, episodes)
    print(json.dumps(asdict(await playing.begin())), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(asdict(await playing.round(calls))), flush=True)
    await playing.end()


def hold_cluster(hosts: int, episodes: int, calls: int) -> None:
    """Start a cluster of so many hosts, with a gateway for each, and play a round for each line of standard input."""
    with ray_nodes(hosts) as address, ExitStack() as stack:
        replicas = [stack.enter_context(replica(address, "echo")) for _ in range(hosts)]
        processes = Processes([process.pid for _, process in replicas])
        asyncio.run(_serve_rounds(processes, [url for url, _ in replicas], episodes, calls))


class HeldCluster:
    """A cluster in a process of its own, so that its processes are told from those of another one."""

    def __init__(self, process: subprocess.Popen[str]):
        self._process = process
        self.costs = ClusterCosts(**_with_roles(self._read()))

    def round(self) -> Round:
        assert self._process.stdin is not None
        self._process.stdin.write("round\n")
        self._process.stdin.flush()
        return Round(**_with_roles(self._read()))

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"the cluster ended with exit code {self._process.wait()}")


def _with_roles(data: dict[str, Any]) -> dict[str, Any]:
    return {name: RoleCosts(**value) if isinstance(value, dict) else value for name, value in data.items()}


@contextmanager
def cluster_of(hosts: int, episodes: int, calls: int) -> Iterator[HeldCluster]:
    command = [sys.executable, __file__, "--hold", str(hosts), "--episodes", str(episodes), "--calls", str(calls)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield HeldCluster(process)
        assert process.stdin is not None
        process.stdin.close()


@dataclass(frozen=True)
class Row:
    """A figure of two hosts: what was predicted from one host, and what was measured."""

    name: str
    pairs: tuple[tuple[float, float], ...]

    @property
    def ratios(self) -> list[float]:
        return [predicted / measured for predicted, measured in self.pairs]

    @property
    def off(self) -> float:
        """By which factor the prediction is wrong."""
        return max(median(self.ratios), 1 / median(self.ratios))

    def __str__(self) -> str:
        predicted, measured = (median(side) for side in zip(*self.pairs, strict=True))
        spread = f"{min(self.ratios):.2f}-{max(self.ratios):.2f}"
        return f"{self.name:<24}{predicted:>10,.0f}{measured:>10,.0f}{median(self.ratios):>7.2f}  {spread}"


def compare(episodes: int, calls: int, rounds: int) -> tuple[ClusterCosts, list[Row], set[str]]:
    """The costs of one host, how well they predict two, and what keeps two from more calls."""
    cpu: list[tuple[float, float]] = []
    rates: list[tuple[float, float]] = []
    limits: set[str] = set()
    with cluster_of(1, episodes // 2, calls) as one, cluster_of(2, episodes, calls) as two:
        for _ in range(rounds):
            before, measured, after = one.round(), two.round(), one.round()
            costs = replace(one.costs, call_us=_middle([before, after]))
            predicted = predict(costs, 2, measured.cores, (before.callers_us + after.callers_us) / 2)
            cpu.append((predicted.call_us, measured.total_us))
            rates.append((predicted.calls_per_second, measured.calls_per_second))
            limits.add(predicted.limit)
        memory = (_memory_mb(one.costs, episodes), _memory_mb(two.costs, episodes))
        rows = [
            Row("CPU of a call, µs", tuple(cpu)),
            Row("calls a second", tuple(rates)),
            Row("memory, MB, without Ray", (memory,)),
        ]
        return one.costs, rows, limits


def _memory_mb(costs: ClusterCosts, episodes: int) -> float:
    """Memory of two gateways and two hosts with their episodes."""
    return 2 * (costs.gateway_mb + costs.host_mb) + episodes * costs.episode_mb


def _middle(rounds: Sequence[Round]) -> RoleCosts:
    return RoleCosts(**{role: median(getattr(one.call_us, role) for one in rounds) for role in ROLES})


def main() -> None:
    """Compare, and say how far the prediction is off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--calls", type=int, default=30, help="calls of each episode in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the costs of one host to this file")
    parser.add_argument("--within", type=float, help="exit with 1 if a prediction is off by more than this factor")
    parser.add_argument("--hold", type=int, metavar="HOSTS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hold:
        hold_cluster(options.hold, options.episodes, options.calls)
        return
    costs, rows, limits = compare(options.episodes, options.calls, options.rounds)
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(costs), indent=2) + "\n", "utf-8")
    print(f"two hosts and two gateways, {options.episodes} episodes; medians of {options.rounds} rounds")
    print(f"{'':<24}{'predicted':>10}{'measured':>10}{'ratio':>7}  of the rounds")
    print(*rows, f"what keeps it from more calls: {', '.join(sorted(limits))}", sep="\n")
    wrong = [row.name for row in rows if options.within is not None and row.off > options.within]
    if wrong:
        raise SystemExit(f"off by more than a factor of {options.within:g}: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
