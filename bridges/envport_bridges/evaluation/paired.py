"""Differences of two results on the same samples: intervals, a sign test, and what could have been seen."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from envport_bridges.evaluation.clusters import POWER_80, TWO_SIDED_95, Clusters
from envport_bridges.evaluation.intervals import Estimate, two_values

__all__ = ["PairedDifference", "SignTest", "difference_of_means", "difference_of_shares", "sign_test"]

_EQUAL = 1e-12


@dataclass(frozen=True)
class PairedDifference:
    """The mean difference of paired samples.

    Attributes:
        estimate: The mean of the differences, with its interval.
        smallest: The smallest true difference that such an evaluation finds with a power of 80%, at a level of 5%.
            `None` if it is unknown, as the interval then is, or if no possible difference is large enough.
    """

    estimate: Estimate
    smallest: float | None = None


@dataclass(frozen=True)
class SignTest:
    """The sign test over tasks, which asks only in which direction each task differs.

    Attributes:
        better: Number of tasks with a higher mean in the second result.
        equal: Number of tasks with equal means.
        worse: Number of tasks with a lower mean in the second result.
        p: Two-sided p-value: how likely a split at least as uneven is if either direction is as likely as the other.
    """

    better: int
    equal: int
    worse: int
    p: float


def difference_of_shares(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]], tasks: Sequence[str]
) -> PairedDifference:
    """The difference of two shares, second minus first, with an interval within -1 and 1.

    It is the adjusted Wald interval with one added pair for each direction (Bonett and Price,
    doi:10.3102/1076998611411915), which Fagerland et al. recommend (doi:10.1002/sim.6148), for the effective number of
    independent pairs (`Clusters.effective_size`).

    Args:
        first: For each sample, 1 or 0 for each attempt of the first player.
        second: The same of the second player.
        tasks: The task of each sample.
    """
    ones, others = _means(first), _means(second)
    up = fmean(b * (1 - a) for a, b in zip(ones, others, strict=True))
    down = fmean(a * (1 - b) for a, b in zip(ones, others, strict=True))
    difference = up - down
    clusters = _clusters(first, second, tasks)
    if clusters.count < 2:
        return PairedDifference(Estimate(difference))
    variance = clusters.variance([b - a for a, b in zip(ones, others, strict=True)])
    size = clusters.effective_size(up + down - difference**2, variance)
    raised, lowered = ((part * size + 1) / (size + 2) for part in (up, down))
    middle = raised - lowered
    error = math.sqrt((raised + lowered - middle**2) / (size + 2))
    half = TWO_SIDED_95 * error
    smallest = (TWO_SIDED_95 + POWER_80) * error
    low, high = max(middle - half, -1.0), min(middle + half, 1.0)
    estimate = Estimate(difference, min(low, difference), max(high, difference))
    return PairedDifference(estimate, smallest if smallest <= 1 else None)


def difference_of_means(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]], tasks: Sequence[str]
) -> PairedDifference:
    """The difference of two means, second minus first, by Student's interval of the paired differences.

    Standard errors are clustered by task (arXiv:2411.00640, which also has the smallest difference). Where there are
    only two different values, it is the difference of the shares of one of them.

    Args:
        first: For each sample, the value of each attempt of the first player.
        second: The same of the second player.
        tasks: The task of each sample.
    """
    if (pair := two_values(first, second)) is not None:
        low, high = pair
        ones, others = ([[float(one == high) for one in sample] for sample in side] for side in (first, second))
        found = difference_of_shares(ones, others, tasks)
        return PairedDifference(
            found.estimate.scaled(0.0, high - low), None if found.smallest is None else found.smallest * (high - low)
        )
    differences = [b - a for a, b in zip(_means(first), _means(second), strict=True)]
    mean = fmean(differences)
    half = _clusters(first, second, tasks).half_width(differences)
    if half is None:
        return PairedDifference(Estimate(mean))
    return PairedDifference(Estimate(mean, mean - half, mean + half), half * (1 + POWER_80 / TWO_SIDED_95))


def sign_test(differences: Sequence[float], tasks: Sequence[str]) -> SignTest:
    """The exact two-sided sign test (Dixon and Mood, doi:10.1080/01621459.1946.10501898).

    Args:
        differences: The difference of each sample.
        tasks: The task of each sample. The samples of a task are one observation.
    """
    sums: dict[str, float] = defaultdict(float)
    for task, difference in zip(tasks, differences, strict=True):
        sums[task] += difference
    better = sum(one > _EQUAL for one in sums.values())
    worse = sum(one < -_EQUAL for one in sums.values())
    fewer, different = min(better, worse), better + worse
    tail = sum(math.comb(different, number) for number in range(fewer + 1))
    return SignTest(better, len(sums) - different, worse, min(1.0, float(2 * tail / 2**different)))


def _means(values: Sequence[Sequence[float]]) -> list[float]:
    return [fmean(sample) for sample in values]


def _clusters(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]], tasks: Sequence[str]) -> Clusters:
    return Clusters(tasks, [min(len(a), len(b)) for a, b in zip(first, second, strict=True)])
