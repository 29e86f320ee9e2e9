"""`envport check`."""

from __future__ import annotations

import os
import sys
import threading
from typing import Annotated, NoReturn

import anyio
import typer

from envport.checker import CHECK_SECONDS, CheckReport, CheckWatch, examine
from envport.checker.watch import OutOfTime
from envport.cli import console
from envport.cli.loading import load_environment
from envport.cli.options import Reference

__all__ = ["check"]

_FIRST_SECONDS, _EVERY_SECONDS = 3.0, 10.0
_END_SECONDS = 0.5


def check(
    reference: Reference,
    seed: Annotated[
        list[int] | None, typer.Option(min=0, help="Seed to play with; may be repeated. 0, 1 and 2 if not given.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Random calls to make in each episode.")] = 30,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Time limit of the whole check. It then says what was not checked.")
    ] = CHECK_SECONDS,
) -> None:
    """Check that an environment keeps the authoring contract, by playing it at random."""

    def stuck(late: OutOfTime) -> None:
        # The main thread cannot be interrupted: end the process for it.
        sys.stdout = sys.__stdout__
        console.status("")
        if watch.report is None:
            console.error(f"{reference} cannot be checked: {late.step} takes longer than {late.limit:g} s")
            _leave(2)
        watch.report.stop(late.limit, f"{late.step}, which blocks and cannot be stopped", late.running)
        _leave(_tell(watch.report))

    # Whoever gives a short limit waits for a short time.
    first, every = min(_FIRST_SECONDS, seconds / 4), min(_EVERY_SECONDS, seconds / 2)
    if console.is_terminal():
        every = min(1.0, every)
    threads = threading.enumerate()
    with CheckWatch(seconds, console.status, first=first, every=every, stuck=stuck) as watch:
        watch.name(f"importing {reference}")
        spec = load_environment(reference)
        report = anyio.run(examine, spec, tuple(seed or (0, 1, 2)), steps, watch)
    console.status("")
    code = _tell(report)
    for thread in threading.enumerate():
        if thread not in threads and not thread.daemon:
            thread.join(_END_SECONDS)
            if thread.is_alive():
                # A tool hangs in it, and Python's exit would wait for it.
                _leave(code)
    raise typer.Exit(code)


def _tell(report: CheckReport) -> int:
    for finding in report.findings:
        console.line(str(finding), "red" if finding.level == "error" else "yellow")
    played = f"{report.episodes} episodes, {report.calls} calls, {report.refused} bad calls refused"
    if not report.ok:
        console.error(f"{report.environment} breaks the authoring contract ({played})")
        return 1
    if report.not_elsewhere is not None:
        console.line(f"Not played in another process: {report.not_elsewhere}", "yellow")
    if report.elsewhere:
        console.line(f"{_episodes(report.elsewhere)} gave the same in another process, with other hashes of text.")
    if report.alone:
        how = "alone as beside others" if report.beside else "again; none could be played beside others"
        console.line(f"{_episodes(report.alone)} gave the same {how}, and left nothing behind.")
    if report.limits_kept_by is not None:
        console.line(f"Limits on memory, processes and CPU time are kept by {report.limits_kept_by}.")
    if report.solved:
        tasks = "1 task" if report.solved == 1 else f"{report.solved} tasks"
        console.line(f"Reference solutions and doing nothing earn what they have to, in {tasks}.")
    console.line(f"{report.environment} keeps the authoring contract ({played}).", "green")
    return 0


def _episodes(number: int) -> str:
    return "1 episode" if number == 1 else f"{number} episodes"


def _leave(code: int) -> NoReturn:
    """End the process without waiting for its threads."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
