"""A picture of an audit."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from envport_bridges.audit.auditing import Audit

__all__ = ["draw"]

_COLOURS = {"idle": "#7f7f7f", "random": "#1f77b4", "reference": "#2ca02c", "cheat": "#d62728"}


def draw(audit: Audit, file: Path) -> None:
    """Draw what each player earned, with intervals, and the floor.

    Args:
        audit: The audit.
        file: A file that ends in .png or .svg.
    """
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    players = [one for one in reversed(audit.players) if one.reward.mean is not None]
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.4 * len(players)))
    for row, one in enumerate(players):
        reward = one.reward
        axes.barh(row, reward.mean, color=_COLOURS[one.kind], height=0.6)
        if reward.low is not None:
            axes.plot([reward.low, reward.high], [row, row], color="black", linewidth=1.5)
    axes.axvline(audit.floor.value, color="black", linestyle="--", linewidth=1, label=f"floor {audit.floor}")
    axes.set_yticks(range(len(players)), [one.name for one in players])
    axes.set_xlabel("mean reward, with its 95% interval")
    axes.set_title(f"{audit.environment}: {'no check failed' if audit.passed else 'not to be trusted yet'}")
    axes.legend(loc="best", fontsize="small")
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)
