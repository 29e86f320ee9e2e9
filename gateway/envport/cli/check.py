"""`envport check`."""

from __future__ import annotations

from typing import Annotated

import anyio
import typer

from envport.checker import examine
from envport.cli import console
from envport.cli.loading import load_environment
from envport.cli.options import Reference

__all__ = ["check"]


def check(
    reference: Reference,
    seed: Annotated[
        list[int] | None, typer.Option(min=0, help="Seed to play with; may be repeated. 0, 1 and 2 if not given.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Random calls to make in each episode.")] = 30,
) -> None:
    """Check that an environment keeps the authoring contract, by playing it at random."""
    report = anyio.run(examine, load_environment(reference), tuple(seed or (0, 1, 2)), steps)
    for finding in report.findings:
        console.line(str(finding), "red" if finding.level == "error" else "yellow")
    played = f"{report.episodes} episodes, {report.calls} calls, {report.refused} bad calls refused"
    if not report.ok:
        console.error(f"{report.environment} breaks the authoring contract ({played})")
        raise typer.Exit(1)
    if report.limits_kept_by is not None:
        console.line(f"Limits on memory, processes and CPU time are kept by {report.limits_kept_by}.")
    console.line(f"{report.environment} keeps the authoring contract ({played}).", "green")
