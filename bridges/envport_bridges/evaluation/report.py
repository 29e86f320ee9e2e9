"""Results as one HTML file with plots."""

from __future__ import annotations

import html
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envport.errors import MissingExtra
from envport_bridges.evaluation.results import Result
from envport_bridges.evaluation.rows import player_labels, short, telling, told
from envport_bridges.evaluation.table import (
    OUTSIDE,
    WORST_CASE,
    explain_worst_case,
    show_estimate,
    task_cells,
)

__all__ = ["write_report"]

_MOST_TASKS = 60
_BY_TASK = ("task", "episodes", "reward", "success", "steps", "tool errors")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0 } th, td { padding: .3rem .8rem; text-align: right }
th { border-bottom: 2px solid #888 } td { border-bottom: 1px solid #ddd } th:first-child, td:first-child,
th:nth-child(2), td:nth-child(2) { text-align: left } code { font-size: 85% } svg { max-width: 100%; height: auto }
"""


def write_report(results: Sequence[Result], file: Path) -> None:
    """Write a report.

    Args:
        results: The results to report.
        file: The file to write.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    parts = ["<!doctype html><meta charset='utf-8'><title>Evaluation</title>", f"<style>{_STYLE}</style>"]
    labels, names = player_labels(results), telling(results)
    parts += ["<h1>Evaluation</h1>", _overview(results, labels, names)]
    for result in results:
        parts += [_section(result, labels[result.player], names)]
    file.write_text("\n".join(parts), encoding="utf-8")


def _overview(results: Sequence[Result], labels: Mapping[str, str], names: Sequence[str]) -> str:
    head = ("environment", "player", *names, "tasks", "episodes", "reward [95%]", "success [95%]", "lost")
    rows: list[tuple[str, ...]] = []
    for result in results:
        rows.append(
            (
                result.identity.environment,
                labels[result.player],
                *(told(result, name) for name in names),
                f"{result.tasks}",
                f"{len(result.played)}",
                show_estimate(result.estimate("reward")),
                show_estimate(result.success_rate(), percent=True),
                f"{len(result.lost)}",
            )
        )
        if result.lost:
            worst, total = result.worst_case(), len(result.played) + len(result.lost)
            estimates = show_estimate(worst.reward), show_estimate(worst.success, percent=True)
            rows.append(("", WORST_CASE, *("" for _ in names), "", f"{total}", *estimates, ""))
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def _section(result: Result, label: str, names: Sequence[str]) -> str:
    identity = result.identity
    facts = (
        f"version {identity.version}, options {identity.options}, split {identity.split}, seed {result.seed}, "
        f"success from a reward of {identity.success_at:g}, envport {identity.envport}"
    )
    facts += "".join(f", {name} {told(result, name)}" for name in names if name in result.settings)
    facts += f". {OUTSIDE}" if result.sandboxed is False else ""
    parts = [
        f"<h2>{html.escape(identity.environment)}: {html.escape(label)}</h2>",
        f"<p>{html.escape(facts)}<br>tools <code>{html.escape(identity.fingerprint)}</code><br>"
        f"log <code>{html.escape(result.log)}</code></p>",
    ]
    if result.played:
        parts += [_reward_plot(result), _steps_plot(result)]
        ends = Counter(f"{one.outcome}: {one.stopped}" for one in result.played)
        parts.append(_table(_BY_TASK, [task_cells(row) for row in result.by_task()]))
        parts.append(_table(("how it ended", "episodes"), [(how, f"{count}") for how, count in ends.most_common()]))
    if result.lost:
        parts.append("<h3>Lost to faults, not scored</h3>")
        parts.append(f"<p>{html.escape(explain_worst_case(result))}</p>")
        rows = [(short(one.sample), one.fault, short(one.why, 300)) for one in result.lost]
        parts.append(_table(("sample", "fault of", "why"), rows))
    return "\n".join(parts)


def _reward_plot(result: Result) -> str:
    rewards = sorted(result.rewards_by_task().items(), key=lambda item: sum(item[1]) / len(item[1]))[:_MOST_TASKS]
    figure, axes = _figure(max(2.0, 0.25 * len(rewards)))
    for place, (_, values) in enumerate(rewards):
        axes.barh(place, sum(values) / len(values), color="#8fb8e8")
        axes.plot(values, [place] * len(values), "k.", markersize=4)
    axes.set_yticks(range(len(rewards)), [short(task, 40) for task, _ in rewards])
    more = f" (the lowest {_MOST_TASKS})" if result.tasks > _MOST_TASKS else ""
    axes.set_title(f"Reward by task{more}: mean, and each episode")
    return _svg(figure)


def _steps_plot(result: Result) -> str:
    steps = [one.steps for one in result.played if one.success]
    if not steps:
        return "<p>No episode was a success.</p>"
    figure, axes = _figure(2.5)
    counts = Counter(steps)
    axes.bar(list(counts), list(counts.values()), color="#8fd3a6")
    axes.set_xlabel("steps")
    axes.set_ylabel("episodes")
    axes.set_title("Steps to success")
    return _svg(figure)


def _figure(height: float) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("a report with plots", "eval") from None
    figure: Any = Figure(figsize=(8, height), layout="constrained")
    return figure, figure.subplots()


def _svg(figure: Any) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg")
    return out.getvalue()[out.getvalue().index("<svg") :]
