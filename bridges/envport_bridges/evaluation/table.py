"""Results as tables on a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from envport_bridges.evaluation.comparison import Comparison
from envport_bridges.evaluation.intervals import Estimate
from envport_bridges.evaluation.losses import WorstCase
from envport_bridges.evaluation.results import Result, TaskResult
from envport_bridges.evaluation.rows import player_labels, short, telling, told

__all__ = [
    "OUTSIDE",
    "WORST_CASE",
    "explain_worst_case",
    "print_by_task",
    "print_comparison",
    "print_results",
    "show_estimate",
    "show_mean",
    "task_cells",
]

_SHOWN_LOSSES = 3

OUTSIDE = "The agent did not run in a sandbox."
"""What is said of a result whose agent may have reached more than its episode."""

WORST_CASE = "worst case: lost = failed"
"""The label of the row below a result with lost episodes."""


def show_estimate(estimate: Estimate, *, percent: bool = False) -> str:
    """An estimate with its interval, or that this is unknown."""
    factor, places = (100, 0) if percent else (1, 3)
    text = show_mean(estimate.mean, percent=percent)
    if estimate.mean is None:
        return text
    if estimate.low is None or estimate.high is None:
        return f"{text} [unknown]"
    return f"{text} [{estimate.low * factor:.{places}f}, {estimate.high * factor:.{places}f}]"


def show_mean(mean: float | None, *, percent: bool = False) -> str:
    """A mean without its interval."""
    if mean is None:
        return "-"
    return f"{mean * 100:.0f}%" if percent else f"{mean:.3f}"


def print_results(results: Sequence[Result]) -> None:
    """Print results side by side, and the locations of their logs."""
    # Only a terminal has a width. Elsewhere, do not wrap or cut lines.
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(highlight=False, width=250)
    table = Table(box=None, pad_edge=False, header_style="bold")
    epochs = max(result.epochs for result in results)
    table.add_column("environment", no_wrap=True)
    table.add_column("player")
    columns = _columns(results, epochs)
    for column in columns.names:
        table.add_column(column, justify="right")
    for result in results:
        table.add_row(*(Text(cell) for cell in _cells(result, columns)))
        if result.lost:
            table.add_row(*(Text(cell, "yellow") for cell in _worst_cells(result, columns)))
    console.print(table)
    console.print(Text(columns.means, "dim"), soft_wrap=True)
    for result in results:
        if not result.seeds:
            _print_notes(console, result)


@dataclass(frozen=True)
class _Columns:
    """The columns after those of the environment and the player.

    Attributes:
        labels: What each player is called.
        telling: The conditions that tell rows apart.
        epochs: How often each sample was played.
        priced: Whether there is a column for the cost.
        limited: Whether there is one for the episodes that were stopped by a limit.
    """

    labels: Mapping[str, str]
    telling: Sequence[str]
    epochs: int
    priced: bool
    limited: bool

    @property
    def names(self) -> list[str]:
        names = [*self.telling, "tasks", "episodes", "reward [95%]", "success [95%]"]
        if self.epochs > 1:
            names += [f"pass@{self.epochs}", f"pass^{self.epochs}"]
        names += ["steps", "tool errors", "tokens", "time"]
        names += ["cost"] if self.priced else []
        return [*names, *(["stopped by a limit"] if self.limited else []), "lost to faults"]

    @property
    def means(self) -> str:
        return f"Steps, tool errors, tokens{', time and cost' if self.priced else ' and time'} are means of an episode."


def _columns(results: Sequence[Result], epochs: int) -> _Columns:
    priced = any(result.cost is not None for result in results)
    limited = any(result.stopped_by_limits for result in results)
    return _Columns(player_labels(results), telling(results), epochs, priced, limited)


def show_dollars(dollars: float) -> str:
    """An amount with four decimals, or as many as show two digits of it."""
    places = 4 if dollars <= 0 else max(4, 1 - math.floor(math.log10(dollars)))
    return f"${dollars:.{places}f}"


def _cells(result: Result, columns: _Columns) -> list[str]:
    cells = [
        result.identity.environment,
        columns.labels[result.player],
        *(told(result, name) for name in columns.telling),
        f"{result.tasks}",
        f"{len(result.played)}",
        show_estimate(result.estimate("reward")),
        show_estimate(result.success_rate(), percent=True),
    ]
    cells += _passes(result, columns.epochs)
    for name, unit in (("steps", ""), ("tool_errors", ""), ("tokens", ""), ("seconds", " s")):
        mean = result.estimate(name).mean
        cells.append("-" if mean is None else f"{mean:.{0 if name == 'tokens' else 1}f}{unit}")
    if columns.priced:
        cells.append("-" if result.cost is None else show_dollars(result.cost / len(result.played)))
    if columns.limited:
        cells.append(f"{sum(result.stopped_by_limits.values())}")
    return [*cells, f"{len(result.lost)}"]


def _worst_cells(result: Result, columns: _Columns) -> list[str]:
    """The worst case, in the columns of the scores that it belongs to."""
    worst = result.worst_case()
    cells = ["", WORST_CASE, *("" for _ in columns.telling), "", f"{len(result.played) + len(result.lost)}"]
    cells += [show_estimate(worst.reward), show_estimate(worst.success, percent=True)]
    return cells + _passes(worst, columns.epochs)


def _passes(scores: Result | WorstCase, epochs: int) -> list[str]:
    found = (scores.pass_at(epochs), scores.pass_hat(epochs)) if epochs > 1 else ()
    return ["-" if value is None else f"{value:.3f}" for value in found]


def explain_worst_case(result: Result) -> str:
    """What the worst case assumes, in one sentence."""
    return (
        f"Worst case: each of the {len(result.lost)} lost episodes counts as failed, with a reward of "
        f"{result.worst_case().lost_reward:g} (the lowest one seen, or 0 if that is lower)."
    )


def _print_notes(console: Console, result: Result) -> None:
    console.print(Text(f"Log: {result.log}", "dim"), soft_wrap=True)
    if result.missing or result.status != "success":
        console.print(
            Text(f"  {result.status}: {result.missing} episodes were not played. envport eval --resume {result.log}"),
            soft_wrap=True,
        )
    if result.cost is not None:
        console.print(Text(f"  All episodes together cost {show_dollars(result.cost)}."))
    if limits := result.stopped_by_limits:
        counts = ", ".join(f"{why} ({count})" for why, count in limits.items())
        stopped = f"{sum(limits.values())} of {len(result.played)} episodes were stopped by a limit"
        console.print(Text(f"  {stopped}: {counts}"), soft_wrap=True)
    if result.sandboxed is False:
        console.print(Text(f"  {OUTSIDE}", "yellow"))
    if result.lost:
        console.print(Text(f"  {explain_worst_case(result)}", "yellow"), soft_wrap=True)
    for lost in result.lost[:_SHOWN_LOSSES]:
        line = f"  lost {short(lost.sample)} ({lost.fault}): {short(lost.why, 160)}"
        console.print(Text(line, "yellow"), soft_wrap=True)
    if len(result.lost) > _SHOWN_LOSSES:
        console.print(Text(f"  and {len(result.lost) - _SHOWN_LOSSES} more", "yellow"))


def print_by_task(results: Sequence[Result]) -> None:
    """Print the result of each task, one table for each result."""
    console = Console(highlight=False, soft_wrap=True)
    labels, names = player_labels(results), [name for name in telling(results) if name != "seed"]
    for result in results:
        named = [f"seed {result.seed}", *(f"{name} {told(result, name)}" for name in names)]
        head = ", ".join([result.identity.environment, labels[result.player], *named, "by task"])
        console.print(Text(f"\n{head}", "bold"))
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("task")
        for column in ("episodes", "reward", "success", "steps", "tool errors"):
            table.add_column(column, justify="right")
        for row in result.by_task():
            table.add_row(*map(Text, task_cells(row)))
        console.print(table)


def task_cells(row: TaskResult) -> tuple[str, ...]:
    """The result of a task as text."""
    means = (show_mean(row.reward), show_mean(row.success, percent=True), f"{row.steps:.1f}", f"{row.tool_errors:.1f}")
    return (short(row.task), f"{row.episodes}", *means)


def print_comparison(comparison: Comparison) -> None:
    """Print the differences of two results."""
    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "A", "B", "B - A, paired [95%]", "smallest found at 80% power"):
        table.add_column(column, justify="left" if not column else "right")
    rows = (
        ("reward", comparison.reward, False),
        ("success", comparison.success, True),
        ("steps", comparison.steps, False),
    )
    for name, row, percent in rows:
        smallest = "unknown" if row.smallest is None else show_mean(row.smallest, percent=percent)
        means = (show_mean(mean, percent=percent) for mean in (row.a, row.b))
        cells = (name, *means, show_estimate(row.difference, percent=percent), smallest)
        table.add_row(*(Text(cell) for cell in cells))
    console.print(Text(f"A: {comparison.players[0]}\nB: {comparison.players[1]}"))
    for name, sandboxed in zip("AB", comparison.sandboxed, strict=True):
        if sandboxed is False:
            console.print(Text(f"{name}: {OUTSIDE}", "yellow"))
    console.print(Text(f"on {comparison.identity.environment}, {comparison.pairs} samples, {comparison.tasks} tasks"))
    console.print(table)
    for line in _notes_on(comparison):
        console.print(Text(line))
    for line in _warnings_on(comparison):
        console.print(Text(line, "yellow"))


def _notes_on(comparison: Comparison) -> Iterator[str]:
    yield (f"B is better on {comparison.better} samples, equal on {comparison.equal}, worse on {comparison.worse}.")
    sign = comparison.sign_test
    yield f"By task: better on {sign.better}, equal on {sign.equal}, worse on {sign.worse}; sign test p = {sign.p:.3g}."


def _warnings_on(comparison: Comparison) -> Iterator[str]:
    for name, (first, second) in comparison.despite.items():
        yield f"Compared despite {name}: {short(repr(first))} in A, {short(repr(second))} in B."
    if comparison.unknown:
        yield f"Not checked, because a log does not say: {', '.join(comparison.unknown)}."
    for name, share in zip("AB", comparison.lost, strict=True):
        if share:
            yield f"{name} lost {share:.0%} of its episodes to faults. They are left out: read its worst case."
    if comparison.unpaired:
        yield f"Left out: {comparison.unpaired} samples that only one of them has a score for."
