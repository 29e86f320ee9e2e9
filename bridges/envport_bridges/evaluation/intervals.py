"""Means with 95% intervals, for samples that share tasks. The estimators are those of Inspect."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from inspect_ai.scorer import SampleScore, Score, ci, ci_wilson

__all__ = ["Estimate", "mean_of", "pass_at", "pass_hat", "share_of"]

_CLUSTER = "cluster"


@dataclass(frozen=True)
class Estimate:
    """A mean and the 95% interval around it.

    Attributes:
        mean: The mean; `None` if there is no sample.
        low: Lower end of the interval; `None` with fewer than two tasks.
        high: Upper end of the interval.
    """

    mean: float | None
    low: float | None = None
    high: float | None = None


def mean_of(values: Sequence[float], tasks: Sequence[str]) -> Estimate:
    """The mean with Student's t interval and standard errors clustered by task (arXiv:2411.00640).

    Args:
        values: One value for each sample.
        tasks: The task of each sample.
    """
    return _estimate(ci(cluster=_CLUSTER), values, tasks)


def share_of(values: Sequence[float], tasks: Sequence[str]) -> Estimate:
    """The mean of values from 0 to 1 with Wilson's interval, clustered by task.

    Args:
        values: One value for each sample.
        tasks: The task of each sample.
    """
    return _estimate(ci_wilson(cluster=_CLUSTER), values, tasks)


def _estimate(metric: Any, values: Sequence[float], tasks: Sequence[str]) -> Estimate:
    if not values:
        return Estimate(None)
    mean = sum(values) / len(values)
    if len(set(tasks)) < 2:
        return Estimate(mean)
    scores = [
        SampleScore(score=Score(value=value), sample_metadata={_CLUSTER: task})
        for value, task in zip(values, tasks, strict=True)
    ]
    bounds = cast("dict[str, float]", metric(scores))
    return Estimate(mean, bounds["lower"], bounds["upper"])


def pass_at(attempts: Sequence[Sequence[bool]], k: int) -> float | None:
    """Unbiased estimate of the probability that at least one of k attempts succeeds (Chen et al., arXiv:2107.03374).

    Args:
        attempts: For each sample, whether each attempt succeeded.
        k: Number of attempts; samples with fewer attempts are left out.
    """
    return _over_samples(attempts, k, lambda n, good: 1.0 - math.comb(n - good, k) / math.comb(n, k))


def pass_hat(attempts: Sequence[Sequence[bool]], k: int) -> float | None:
    """Unbiased estimate of the probability that all k attempts succeed (Yao et al., arXiv:2406.12045).

    Args:
        attempts: For each sample, whether each attempt succeeded.
        k: Number of attempts; samples with fewer attempts are left out.
    """
    return _over_samples(attempts, k, lambda n, good: math.comb(good, k) / math.comb(n, k))


def _over_samples(attempts: Sequence[Sequence[bool]], k: int, estimate: Callable[[int, int], float]) -> float | None:
    enough = [tries for tries in attempts if len(tries) >= k]
    if not enough:
        return None
    return sum(estimate(len(tries), sum(tries)) for tries in enough) / len(enough)
