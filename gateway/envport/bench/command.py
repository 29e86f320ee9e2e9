"""The benchmark on the command line."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from envport.bench.flame import measure_flame
from envport.bench.measure import MeasuringPlan
from envport.bench.peers import JUDGED_SESSIONS, PEERS
from envport.bench.plot import draw, require_plot
from envport.bench.profiles import BUILT_IN, BenchTable, GatewayProfile, read_profile
from envport.bench.run import require_bench, run_bench
from envport.bench.targets import TARGETS

__all__ = ["bench"]

_PARTS = (*TARGETS, "opens", "memory", "growth")


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Make few calls: a quick check that the benchmark works.")
    ] = False,
    concurrency: Annotated[
        list[int] | None,
        typer.Option(
            min=1, help="Concurrent callers, each with an episode; may be repeated. 1, 16, 64 and 256 if not given."
        ),
    ] = None,
    calls: Annotated[int | None, typer.Option(min=2, help="Calls of each target in a round.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Number of rounds.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help=f"Measure only this part; may be repeated. One of: {', '.join(_PARTS)}.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="PEER",
            help=f"Play against another framework's server and client, of {', '.join(PEERS)}: at "
            f"{JUDGED_SESSIONS} sessions unless --concurrency says otherwise, and without the other parts unless "
            "--only names them. Installs it into a virtual environment of its own, once.",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_FILE",
            help=f"What is measured: {', '.join(BUILT_IN)}, or a TOML file with a table [bench], of which [serve] has "
            "the options of the measured gateway. Options given here override it.".replace("[", r"\["),
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the cost of a call by callers into this .png or .svg file too."),
    ] = None,
    flame: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="Print which functions of the server take the CPU time while this target is called, and no more.",
        ),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file too.")] = None,
    judge: Annotated[bool, typer.Option("--assert", help="Exit with 1 if a target is missed.")] = False,
) -> None:
    """Measure what the gateway costs beside a bare server and a minimal MCP server."""
    if quick and profile is not None:
        raise typer.BadParameter("--quick is --profile quick: give one of both", param_hint="--profile")
    table, gateway = read_profile(profile or ("quick" if quick else "full"))
    given = {"concurrency": concurrency, "calls": calls, "rounds": rounds, "only": only, "against": against}
    plan = _plan(table.model_copy(update={key: value for key, value in given.items() if value}), gateway)
    console = Console(width=None if Console().is_terminal else 120)
    if flame is not None:
        _known(flame, TARGETS, "--flame")
        require_bench()
        with Console(stderr=True).status("starting") as status:
            found = measure_flame(plan, TARGETS[flame], status.update)
        found.show(console)
        return
    if json_file is not None and not json_file.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {json_file.parent}", param_hint="--json")
    if plot is not None:
        require_plot(plot)
        if not plan.targets and plan.against is None:
            raise typer.BadParameter("there are no calls to draw in what --only names", param_hint="--plot")
    with Console(stderr=True).status("starting") as status:
        report = run_bench(plan, status.update)
    report.show(console)
    if json_file is not None:
        json_file.write_text(json.dumps(report.data(), indent=2) + "\n", "utf-8")
    if plot is not None:
        draw(report, plot)
    if judge and report.missed:
        raise typer.Exit(1)


def _plan(table: BenchTable, gateway: GatewayProfile | None) -> MeasuringPlan:
    """The plan of a profile, with only those of its parts that it names."""
    base = MeasuringPlan()
    named, against = table.only, table.against
    for part in named:
        _known(part, _PARTS, "--only")
    if against is not None:
        _known(against, PEERS, "--against")
    everything = not named and against is None
    alone = (JUDGED_SESSIONS,) if against is not None and not named else base.concurrency
    return replace(
        base,
        targets=base.targets if everything else tuple(part for part in named if part in TARGETS),
        concurrency=tuple(table.concurrency or alone),
        calls=table.calls or base.calls,
        rounds=table.rounds or base.rounds,
        opens=(table.opens or base.opens) if everything or "opens" in named else 0,
        held=(table.held or base.held) if everything or "memory" in named else 0,
        grown=(table.grown or base.grown) if everything or "growth" in named else 0,
        against=against,
        gateway=gateway,
    )


def _known(name: str, names: Collection[str], option: str) -> None:
    if name not in names:
        raise typer.BadParameter(f"{name!r} is none of: {', '.join(names)}", param_hint=option)
