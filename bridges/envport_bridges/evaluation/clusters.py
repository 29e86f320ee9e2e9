"""Samples that share tasks and were attempted several times: their variance and their effective number."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean
from typing import Any, cast

from inspect_ai.scorer import SampleScore, Score, ci, stderr

__all__ = ["POWER_80", "TWO_SIDED_95", "Clusters", "students_t"]

TWO_SIDED_95 = NormalDist().inv_cdf(0.975)
"""The standard normal deviate of a two-sided 95% interval."""

POWER_80 = NormalDist().inv_cdf(0.8)
"""The standard normal deviate of a power of 80%."""

# Below this share of the possible variance, a variance is the rounding of floating point numbers.
_ROUNDING = 1e-12


@cache
def students_t(freedom: int) -> float:
    """The quantile of Student's t of a two-sided 95% interval, as Inspect computes it.

    Args:
        freedom: Degrees of freedom.
    """
    scores = [SampleScore(score=Score(value=float(place == 0))) for place in range(freedom + 1)]
    interval, error = cast("Any", ci()), cast("Any", stderr())
    bounds = cast("dict[str, float]", interval(scores))
    return (bounds["upper"] - bounds["lower"]) / 2 / cast("float", error(scores))


@dataclass(frozen=True)
class Clusters:
    """Which samples depend on each other. Tasks are independent; the samples and the attempts of one task are not.

    Attributes:
        tasks: The task of each sample.
        attempts: How often each sample was attempted.
    """

    tasks: Sequence[str]
    attempts: Sequence[int]

    @property
    def count(self) -> int:
        """Number of different tasks."""
        return len(set(self.tasks))

    @property
    def t(self) -> float:
        """Student's t for a variance that is estimated from the tasks. Needs at least two tasks."""
        return students_t(self.count - 1)

    def variance(self, values: Sequence[float]) -> float:
        """The variance of the mean of the samples, clustered by task (arXiv:2411.00640, appendix A).

        It has the correction for a finite number of tasks, as Inspect's. 0 where all that is left is rounding.

        Args:
            values: The mean of each sample's attempts. They need at least two tasks.
        """
        mean = fmean(values)
        sums: dict[str, float] = defaultdict(float)
        for task, value in zip(self.tasks, values, strict=True):
            sums[task] += value - mean
        variance = len(sums) / (len(sums) - 1) * sum(one * one for one in sums.values()) / len(values) ** 2
        return variance if variance > _ROUNDING * max(map(abs, values)) ** 2 else 0.0

    def effective_size(self, variance_of_one: float, variance: float) -> float:
        """How many independent attempts would tell as much about a share as these dependent ones.

        The variance of one attempt over the variance of the mean, made smaller for a variance that few tasks estimate
        (Korn and Graubard, Survey Methodology 24(2), 1998; Franco et al., doi:10.1093/jssam/smy019). It lies between
        what is possible: attempts at a task that always agree count as one, and attempts that are independent count
        each. Where all attempts agree, nothing says how much they depend on each other, so the tasks count alone.

        Args:
            variance_of_one: Variance of a single attempt.
            variance: The clustered variance of the mean.
        """
        samples = len(self.tasks)
        least = samples**2 / sum(size**2 for size in Counter(self.tasks).values())
        most = samples**2 / sum(1 / number for number in self.attempts)
        if variance_of_one <= 0:
            return least
        estimated = variance_of_one / variance * (TWO_SIDED_95 / self.t) ** 2 if variance > 0 else most
        return min(max(estimated, least), most)

    def half_width(self, values: Sequence[float]) -> float | None:
        """Half of Student's interval around the mean of the samples; `None` if they have no variance, or one task."""
        if self.count < 2:
            return None
        variance = self.variance(values)
        return self.t * math.sqrt(variance) if variance > 0 else None
