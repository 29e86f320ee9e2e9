"""A plot of a report: the cost of a call by the number of callers."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from envport.bench.report import Report
from envport.bench.targets import TARGETS
from envport.errors import ConfigurationError, MissingExtra

__all__ = ["draw", "require_plot"]

_FORMATS = (".png", ".svg")


def require_plot(file: Path) -> None:
    """Check before a long run that it can be drawn.

    Raises:
        ConfigurationError: The file has another ending than `.png` and `.svg`, or there is no such folder.
        MissingExtra: matplotlib is not installed.
    """
    if file.suffix not in _FORMATS:
        raise ConfigurationError(f"a plot is a file that ends in {' or '.join(_FORMATS)}, not {file.name!r}")
    if not file.parent.is_dir():
        raise ConfigurationError(f"there is no folder {file.parent}")
    if find_spec("matplotlib") is None:
        raise MissingExtra("the bench's plot", "bench")


def draw(report: Report, file: Path) -> None:
    """Draw a line for each target.

    Args:
        report: A report with calls or steps.
        file: A file that ends in .png or .svg.
    """
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in report.rows:
        lines.setdefault(TARGETS[row.target].title, []).append((row.callers, row.cpu_us))
    for step in report.against:
        title = f"{step.title} (with the client)"
        lines.setdefault(title, []).append((step.sessions, step.server_us + step.client_us))
    figure, axes = pyplot.subplots(figsize=(8, 5))
    for title, points in lines.items():
        style = ":" if title.startswith("floor") else "-"
        axes.plot(*zip(*sorted(points), strict=True), marker="o", markersize=4, linestyle=style, label=title)
    ticks = sorted({callers for points in lines.values() for callers, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set(xlabel="concurrent callers", ylabel="CPU time of a call, µs", title="envport bench")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(loc="best", fontsize="small")
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)
