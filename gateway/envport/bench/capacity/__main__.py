"""`python -m envport.bench.capacity`: what 1,000, 100,000 and a million concurrent episodes need."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from envport.bench.capacity.costs import ClusterCosts, Costs, GatewayCosts, ProcessCosts, StoreCosts
from envport.bench.capacity.demand import EpisodeDemand, MachineSize
from envport.bench.capacity.plan import Plan, Tier, plan_for
from envport.errors import ConfigurationError

__all__ = ["capacity"]

_MEASURED = Path(__file__).with_name("measured")
_EPISODES = (1_000, 100_000, 1_000_000)
# Ray's own tests of scale reach that many (benchmarks/README.md of Ray).
_RAY_NODES = 3_000
_DEFAULT, _MACHINE = EpisodeDemand(1), MachineSize()


class SurfaceOption(StrEnum):
    """The names of `Surface`."""

    CHANNEL = "channel"
    HTTP = "http"
    SESSIONS = "sessions"


class PlannedRuntimeOption(StrEnum):
    """The names of `PlannedRuntime`."""

    INLINE = "inline"
    PROCESS = "process"
    RAY = "ray"


def capacity(
    episodes: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Open episodes; may be repeated. 1000, 100000 and 1000000 if not given."),
    ] = None,
    runtime: Annotated[
        PlannedRuntimeOption, typer.Option(help="As in envport serve. With ray, hosts run the episodes.")
    ] = PlannedRuntimeOption.INLINE,
    surface: Annotated[
        SurfaceOption,
        typer.Option(help="The rollout channel, MCP over HTTP, or that with a session for each episode."),
    ] = SurfaceOption.CHANNEL,
    think: Annotated[float, typer.Option(min=0.001, help="Seconds between two calls of an episode.")] = (
        _DEFAULT.think_seconds
    ),
    calls: Annotated[int, typer.Option(min=1, help="Calls of an episode, before the next one is opened.")] = (
        _DEFAULT.calls
    ),
    environment_ms: Annotated[float, typer.Option(min=0, help="CPU of the environment for a call, in ms.")] = 0.0,
    environment_mb: Annotated[float, typer.Option(min=0, help="Memory of the environment, in MB an episode.")] = 0.0,
    cores: Annotated[int, typer.Option(min=1, help="Cores of a machine.")] = _MACHINE.cores,
    memory_gb: Annotated[float, typer.Option(min=0.1, help="Memory of a machine, in GB.")] = _MACHINE.memory_gb,
    busy: Annotated[float, typer.Option(min=0.01, max=1, help="How busy a core may be.")] = _MACHINE.busy,
    descriptors: Annotated[int, typer.Option(min=1_000, help="Open files of a process: ulimit -Hn.")] = (
        _MACHINE.descriptors
    ),
    processes: Annotated[int, typer.Option(min=1_000, help="Processes of a machine: kernel.pid_max.")] = (
        _MACHINE.processes
    ),
    bench: Annotated[Path, typer.Option(help="Written by envport bench --json.")] = _MEASURED / "bench.json",
    runtimes: Annotated[Path, typer.Option(help="Printed by python -m envport.bench.runtimes --json.")] = (
        _MEASURED / "runtimes.jsonl"
    ),
    cluster: Annotated[Path, typer.Option(help="Written by python examples/cluster/predict.py --json.")] = (
        _MEASURED / "cluster.json"
    ),
    recording: Annotated[Path, typer.Option(help="Printed by python -m envport.bench.recording --json.")] = (
        _MEASURED / "recording.jsonl"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Work out from measured costs what many concurrent episodes need, and what is short first."""
    machine = MachineSize(cores, memory_gb, busy, descriptors, processes)
    asked = (
        EpisodeDemand(count, think, calls, surface.value, runtime.value, environment_ms, environment_mb)
        for count in episodes or _EPISODES
    )
    try:
        costs = Costs(
            GatewayCosts.read(bench),
            ProcessCosts.read(runtimes),
            ClusterCosts.read(cluster),
            StoreCosts.read(recording),
        )
        plans = [plan_for(demand, machine, costs) for demand in asked]
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        print(json.dumps([asdict(plan) | {"first": asdict(plan.first)} for plan in plans], indent=2))
        return
    own = [file for file in (bench, runtimes, cluster, recording) if file.parent == _MEASURED]
    _show(plans, machine, [file.name for file in own])


def _show(plans: list[Plan], machine: MachineSize, example: list[str]) -> None:
    console = Console(width=None if Console().is_terminal else 120)
    demand = plans[0].demand
    console.print(
        f"Runtime {demand.runtime}, surface {demand.surface}; a call every {demand.think_seconds:g} s, "
        f"{demand.calls} calls an episode; machines with {machine.cores} cores and {machine.memory_gb:g} GB, "
        f"{machine.busy:.0%} busy.",
        highlight=False,
    )
    if example:
        console.print(
            f"Costs that come with envport, of one machine with two cores: {', '.join(example)}. Measure your own.",
            highlight=False,
        )
    table = Table(box=None, pad_edge=False, title="What it needs", title_justify="left")
    table.add_column("")
    for plan in plans:
        table.add_column(f"{plan.demand.episodes:,} episodes", justify="right")
    for name, values in _rows(plans).items():
        table.add_row(name, *values)
    console.print("", table)
    for tier in (plans[-1].gateways, plans[-1].hosts):
        console.print("", _ceilings(tier))
    for plan in plans:
        _remarks(console, plan)


def _rows(plans: list[Plan]) -> dict[str, list[str]]:
    def each(value: Callable[[Plan], float]) -> list[str]:
        return [f"{value(plan):,.0f}" for plan in plans]

    hosts = plans[0].hosts.name
    return {
        "calls a second": each(lambda plan: plan.demand.calls_per_second),
        "openings a second": each(lambda plan: plan.demand.opens_per_second),
        "gateways (processes)": each(lambda plan: plan.gateways.count),
        f"{hosts} that run episodes": each(lambda plan: plan.hosts.count),
        "further machines for gateways": each(lambda plan: plan.gateway_machines),
        "cores' worth of CPU": [f"{plan.cores:,.1f}" for plan in plans],
        "memory, GB": [f"{plan.memory_gb:,.1f}" for plan in plans],
        "sockets of clients": each(lambda plan: plan.client_sockets),
        "sockets between gateways and hosts": each(lambda plan: plan.inner_sockets),
        "processes of episodes": each(lambda plan: plan.processes),
        "reports of load a second": each(lambda plan: plan.asks_per_second),
        "database writes a second": each(lambda plan: plan.demand.writes_per_second),
        "--max-episodes, at least": each(_places),
        "met first": [plan.first.resource for plan in plans],
        "decides the gateways": [plan.gateways.bottleneck.resource for plan in plans],
        f"decides the {hosts}": [plan.hosts.bottleneck.resource for plan in plans],
    }


def _places(plan: Plan) -> float:
    """Places of each process that runs episodes, with a tenth to spare: clients never split evenly."""
    runs = plan.hosts.count if plan.demand.runtime == "ray" else plan.gateways.count
    return 1.1 * plan.demand.episodes / runs


def _ceilings(tier: Tier) -> Table:
    table = Table(box=None, pad_edge=False, title=f"What one of the {tier.name} is enough for", title_justify="left")
    table.add_column("resource")
    table.add_column("episodes", justify="right")
    table.add_column("what to change")
    for ceiling in tier.ceilings:
        table.add_row(ceiling.resource, f"{ceiling.episodes:,.0f}", ceiling.change)
    return table


def _remarks(console: Console, plan: Plan) -> None:
    nodes = plan.hosts.count + plan.gateway_machines
    if plan.demand.runtime == "ray" and nodes > _RAY_NODES:
        console.print(f"{plan.demand.episodes:,} episodes: {nodes:,} nodes are more than Ray is tested with.")


if __name__ == "__main__":
    typer.run(capacity)
