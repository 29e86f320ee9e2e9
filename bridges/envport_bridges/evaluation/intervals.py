"""Means, shares and pass@k with 95% intervals, for samples that share tasks and were attempted several times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from envport_bridges.evaluation.clusters import TWO_SIDED_95, Clusters

__all__ = ["Estimate", "mean_of", "pass_at", "pass_hat", "share_of", "two_values"]


@dataclass(frozen=True)
class Estimate:
    """A mean and the 95% interval around it.

    Attributes:
        mean: The mean; `None` if there is no sample.
        low: Lower end of the interval; `None` if the interval is unknown: with fewer than two tasks, or if all values
            are equal, which says nothing about how far the next one would be.
        high: Upper end of the interval.
    """

    mean: float | None
    low: float | None = None
    high: float | None = None

    def scaled(self, low: float, high: float) -> Estimate:
        """The estimate of a share, as that of a mean of these two values."""
        return Estimate(*(None if it is None else low + (high - low) * it for it in (self.mean, self.low, self.high)))


def mean_of(values: Sequence[Sequence[float]], tasks: Sequence[str]) -> Estimate:
    """The mean of the samples, with an interval from the variance between tasks.

    The interval is Student's, with standard errors clustered by task (arXiv:2411.00640). Where there are only two
    different values, the mean says the same as the share of one of them, and has the interval of that share.

    Args:
        values: For each sample, the value of each attempt at it.
        tasks: The task of each sample.
    """
    if (pair := two_values(values)) is not None:
        low, high = pair
        return share_of([[float(one == high) for one in sample] for sample in values], tasks).scaled(low, high)
    if not values:
        return Estimate(None)
    samples = [fmean(sample) for sample in values]
    mean = fmean(samples)
    half = Clusters(tasks, [len(sample) for sample in values]).half_width(samples)
    return Estimate(mean) if half is None else Estimate(mean, mean - half, mean + half)


def share_of(values: Sequence[Sequence[float]], tasks: Sequence[str]) -> Estimate:
    """The share of attempts with a 1, with Wilson's interval for the effective number of independent attempts.

    Each sample counts once. The effective number is that of `Clusters.effective_size`; attempts at one task are
    counted apart as far as they differ. The interval stays within 0 and 1, also where all attempts agree.

    Args:
        values: For each sample, 1 or 0 for each attempt at it.
        tasks: The task of each sample.
    """
    if not values:
        return Estimate(None)
    samples = [fmean(sample) for sample in values]
    share = fmean(samples)
    clusters = Clusters(tasks, [len(sample) for sample in values])
    if clusters.count < 2:
        return Estimate(share)
    low, high = _wilson(share, clusters.effective_size(share * (1 - share), clusters.variance(samples)))
    # The share lies inside; rounding could put it outside.
    return Estimate(share, min(low, share), max(high, share))


def two_values(*values: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """The lower and the higher value, if the attempts have exactly two different ones."""
    found = sorted({float(one) for part in values for sample in part for one in sample})
    return (found[0], found[1]) if len(found) == 2 else None


def _wilson(share: float, size: float) -> tuple[float, float]:
    """Wilson's score interval (Journal of the American Statistical Association 22, 1927)."""
    square = TWO_SIDED_95**2
    middle = (share + square / (2 * size)) / (1 + square / size)
    spread = math.sqrt(share * (1 - share) / size + square / (4 * size**2))
    half = TWO_SIDED_95 * spread / (1 + square / size)
    return max(middle - half, 0.0), min(middle + half, 1.0)


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
