"""Results as tables on a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from envport_bridges.evaluation.comparison import Comparison
from envport_bridges.evaluation.intervals import Estimate
from envport_bridges.evaluation.results import Result

__all__ = ["print_comparison", "print_results", "short", "show_estimate"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SHOWN_LOSSES = 3


def show_estimate(estimate: Estimate, *, percent: bool = False) -> str:
    """An estimate with its interval."""
    if estimate.mean is None:
        return "-"
    factor, places, unit = (100, 0, "%") if percent else (1, 3, "")
    text = f"{estimate.mean * factor:.{places}f}{unit}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} [{estimate.low * factor:.{places}f}, {estimate.high * factor:.{places}f}]"


def short(text: str, most: int = 60) -> str:
    """One line of text from an environment or a program, without control characters."""
    text = _CONTROL.sub(" ", text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def print_results(results: Sequence[Result]) -> None:
    """Print results side by side, and the locations of their logs."""
    # Only a terminal has a width. Elsewhere, do not wrap or cut lines.
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(highlight=False, width=250)
    table = Table(box=None, pad_edge=False, header_style="bold")
    epochs = max(result.epochs for result in results)
    table.add_column("environment", no_wrap=True)
    table.add_column("player")
    columns = ["tasks", "episodes", "reward [95%]", "success [95%]"]
    if epochs > 1:
        columns += [f"pass@{epochs}", f"pass^{epochs}"]
    columns += [
        "steps",
        "tool errors",
        "tokens",
        "time",
        "lost to faults",
    ]  # all but the last are means of the episodes
    for column in columns:
        table.add_column(column, justify="right")
    for result in results:
        table.add_row(*(Text(cell) for cell in _cells(result, epochs)))
    console.print(table)
    for result in results:
        _print_notes(console, result)


def _cells(result: Result, epochs: int) -> list[str]:
    cells = [
        result.identity.environment,
        short(result.player, 40),
        f"{result.tasks}",
        f"{len(result.played)}",
        show_estimate(result.estimate("reward")),
        show_estimate(result.success_rate(), percent=True),
    ]
    if epochs > 1:
        for value in (result.pass_at(epochs), result.pass_hat(epochs)):
            cells.append("-" if value is None else f"{value:.3f}")
    for name, unit in (("steps", ""), ("tool_errors", ""), ("tokens", ""), ("seconds", " s")):
        mean = result.estimate(name).mean
        cells.append("-" if mean is None else f"{mean:.{0 if name == 'tokens' else 1}f}{unit}")
    return [*cells, f"{len(result.lost)}"]


def _print_notes(console: Console, result: Result) -> None:
    console.print(Text(f"Log: {result.log}", "dim"), soft_wrap=True)
    if result.missing or result.status != "success":
        console.print(
            Text(f"  {result.status}: {result.missing} episodes were not played. envport eval --resume {result.log}"),
            soft_wrap=True,
        )
    for lost in result.lost[:_SHOWN_LOSSES]:
        line = f"  lost {short(lost.sample)} ({lost.fault}): {short(lost.why, 160)}"
        console.print(Text(line, "yellow"), soft_wrap=True)
    if len(result.lost) > _SHOWN_LOSSES:
        console.print(Text(f"  and {len(result.lost) - _SHOWN_LOSSES} more", "yellow"))


def print_comparison(comparison: Comparison) -> None:
    """Print the differences of two results."""
    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "A", "B", "B - A, paired [95%]"):
        table.add_column(column, justify="left" if not column else "right")
    rows = (
        ("reward", comparison.reward, False),
        ("success", comparison.success, True),
        ("steps", comparison.steps, False),
    )
    for name, row, percent in rows:
        cells = (name, *(show_estimate(Estimate(mean), percent=percent) for mean in (row.a, row.b)))
        table.add_row(*(Text(cell) for cell in (*cells, show_estimate(row.difference, percent=percent))))
    console.print(Text(f"A: {comparison.players[0]}\nB: {comparison.players[1]}"))
    console.print(Text(f"on {comparison.identity.environment}, {comparison.pairs} samples, {comparison.tasks} tasks"))
    console.print(table)
    better, equal, worse = comparison.better, comparison.equal, comparison.worse
    console.print(Text(f"B is better on {better} samples, equal on {equal}, worse on {worse}."))
    if comparison.unpaired:
        console.print(Text(f"Left out: {comparison.unpaired} samples that only one of them has a score for.", "yellow"))
