"""The benchmark on the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from envport.bench.measure import MeasuringPlan
from envport.bench.peers import JUDGED_SESSIONS, PEERS
from envport.bench.run import run_bench
from envport.bench.targets import TARGETS

__all__ = ["bench"]

_PARTS = (*TARGETS, "opens", "memory", "growth")
_QUICK = MeasuringPlan(concurrency=(1, 4), calls=60, rounds=2, opens=40, held=40, grown=40)


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
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file too.")] = None,
    judge: Annotated[bool, typer.Option("--assert", help="Exit with 1 if a target is missed.")] = False,
) -> None:
    """Measure what the gateway costs beside a bare server and a minimal MCP server."""
    if against is not None and against not in PEERS:
        raise typer.BadParameter(f"{against!r} is none of: {', '.join(PEERS)}", param_hint="--against")
    base = _QUICK if quick else MeasuringPlan()
    plan = replace(
        base,
        concurrency=tuple(concurrency or ((JUDGED_SESSIONS,) if against and not only else base.concurrency)),
        calls=calls or base.calls,
        rounds=rounds or base.rounds,
        against=against,
    )
    if only or against:
        plan = _narrowed(plan, only or ())
    if json_file is not None and not json_file.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {json_file.parent}", param_hint="--json")
    with Console(stderr=True).status("starting") as status:
        report = run_bench(plan, status.update)
    report.show(Console(width=None if Console().is_terminal else 120))
    if json_file is not None:
        json_file.write_text(json.dumps(report.data(), indent=2) + "\n", "utf-8")
    if judge and report.missed:
        raise typer.Exit(1)


def _narrowed(plan: MeasuringPlan, only: Sequence[str]) -> MeasuringPlan:
    """The plan with only these of its parts."""
    if unknown := [part for part in only if part not in _PARTS]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of: {', '.join(_PARTS)}", param_hint="--only")
    return replace(
        plan,
        targets=tuple(part for part in only if part in TARGETS),
        opens=plan.opens if "opens" in only else 0,
        held=plan.held if "memory" in only else 0,
        grown=plan.grown if "growth" in only else 0,
    )
