"""What is logged of a batch's episodes: `envport/*` in TRL's metrics, and in whatever it reports to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from envport_bridges.trl.rollout_environment import RolloutEnvironment

__all__ = ["log_figures"]

_FIGURES: dict[str, Callable[[RolloutEnvironment], float]] = {
    "envport/finished_episodes": lambda one: float(one.finished),
    "envport/steps": lambda one: float(one.steps),
    "envport/refused_calls": lambda one: float(one.errors),
    "envport/seconds_waited": lambda one: one.waited,
}


def log_figures(trainer: Any, environments: Sequence[Any]) -> None:
    """Log the means over a batch: the share of finished episodes, steps, refused calls, and seconds waited for.

    Args:
        trainer: A `GRPOTrainer`.
        environments: The environments of its batch, once all have been played.
    """
    played = [one for one in environments if isinstance(one, RolloutEnvironment)]
    if played and hasattr(trainer, "_log_metric"):
        for name, figure in _FIGURES.items():
            trainer._log_metric(name, sum(map(figure, played)) / len(played))
