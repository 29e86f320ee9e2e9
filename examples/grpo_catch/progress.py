"""Says how a run goes, and says early when it is not learning."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import Any

from transformers import TrainerCallback

SHARE = 5
LEAST = 6
GAIN = 0.05


class Progress(TrainerCallback):
    """Prints a line for each fifth of a run, and a warning while it wins no more than at first.

    Args:
        name: What to call the run.
        batches: Batches of rollouts in all.
        target: A run that wins this share has nothing to learn any more.
    """

    def __init__(self, name: str, batches: int, target: float):
        self._name = name
        self._batches = batches
        self._target = target
        self._every = max(LEAST, batches // SHARE)
        self.history: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **others: Any) -> None:
        """Take down what a batch showed."""
        # Evaluations log under other names, and updates without new rollouts log no games.
        if not logs or "won" not in logs:
            return
        self.history.append(logs)
        done = len(self.history)
        if done % self._every:
            return
        now = fmean(entry["won"] for entry in self.history[-self._every // 2 :])
        print(f"{self._name}: batch {done} of {self._batches}, wins {now:.2f}", flush=True)
        if warning := self.warning():
            print(f"{self._name}: {warning}", flush=True)

    def warning(self) -> str | None:
        """What is wrong with the run so far, and what to try; None if it learns."""
        size = self._every // 2
        first, last = ([entry["won"] for entry in part] for part in (self.history[:size], self.history[-size:]))
        # Twice the standard error of the difference: a smaller gain may be chance.
        least = max(GAIN, 2 * math.sqrt((stdev(first) ** 2 + stdev(last) ** 2) / size))
        if fmean(last) >= min(fmean(first) + least, self._target):
            return None
        entropy = [
            fmean(entry.get("entropy", 0.0) for entry in part) for part in (self.history[:size], self.history[-size:])
        ]
        flat = fmean(entry.get("frac_reward_zero_std", 0.0) for entry in self.history[-size:])
        if flat > 0.5:
            advice = "Most groups teach nothing: try larger groups, easier tasks, or more --warm-up."
        elif entropy[1] < entropy[0] / 2:
            advice = "The choices hardened before the rule was found: try a lower --learning-rate."
        else:
            advice = (
                "There is something to learn from, and the policy does not take it up: try more --warm-up, as it may "
                "not read what it is told, or a higher --learning-rate."
            )
        return (
            f"NOT LEARNING after {len(self.history)} batches: the last {size} won {fmean(last):.2f}, the first {size} "
            f"{fmean(first):.2f} (less than {least:.2f} more may be chance); entropy {entropy[0]:.3f} -> "
            f"{entropy[1]:.3f}; in {flat:.0%} of the groups all episodes have the same reward. {advice}"
        )
