"""Compares two results of one environment by their paired differences. Refuses results that do not match."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from envport.errors import InvalidOption
from envport_bridges.evaluation.conditions import Conflict, conflicts, unknown
from envport_bridges.evaluation.intervals import Estimate
from envport_bridges.evaluation.paired import (
    SignTest,
    difference_of_means,
    difference_of_shares,
    sign_test,
)
from envport_bridges.evaluation.results import Identity, Result

__all__ = ["ComparedRow", "Comparison", "compare_results"]


@dataclass(frozen=True)
class ComparedRow:
    """One compared measure.

    Attributes:
        a: The mean of the first result, over the samples that both results have.
        b: The mean of the second result, over the same samples.
        difference: The mean of the samples' differences, second minus first.
        smallest: The smallest true difference that would have been found with a power of 80%; `None` if it is unknown.
    """

    a: float
    b: float
    difference: Estimate
    smallest: float | None = None


@dataclass(frozen=True)
class Comparison:
    """The differences of two results.

    Attributes:
        identity: What both results measured.
        players: The two players.
        pairs: Number of samples with a score in both results.
        tasks: Number of tasks of these samples.
        unpaired: Number of samples with a score in only one result.
        reward: The episodes' rewards.
        success: The share of successes.
        steps: The episodes' steps.
        better: Number of samples with a higher reward in the second result.
        equal: Number of samples with equal rewards.
        worse: Number of samples with a lower reward in the second result.
        sign_test: The same counted by task, and tested.
        despite: Conditions in which the results differ and are compared all the same, with both values.
        unknown: Conditions that could not be checked, because a log does not hold them.
        sandboxed: For both results, whether the agent ran in a sandbox; `None` if no agent played.
        lost: For both results, the share of their episodes that were lost to faults, which are not compared.
    """

    identity: Identity
    players: tuple[str, str]
    pairs: int
    tasks: int
    unpaired: int
    reward: ComparedRow
    success: ComparedRow
    steps: ComparedRow
    better: int
    equal: int
    worse: int
    sign_test: SignTest
    despite: dict[str, Conflict] = field(default_factory=dict[str, Conflict])
    unknown: tuple[str, ...] = ()
    sandboxed: tuple[bool | None, bool | None] = (None, None)
    lost: tuple[float, float] = (0.0, 0.0)

    def document(self) -> dict[str, Any]:
        """The comparison as JSON."""
        return asdict(self)


def compare_results(a: Result, b: Result, despite: Iterable[str] = ()) -> Comparison:
    """Compare two results.

    Args:
        a: The first result.
        b: The second result.
        despite: Conditions in which they may differ, such as `temperature`, because that is what is compared.

    Raises:
        InvalidOption: They measured different things (the message says which), or have no sample in common.
    """
    found = conflicts(a, b, despite)
    common = [sample for sample in a.by_sample if sample in b.by_sample]
    if not common:
        raise InvalidOption("these results cannot be compared: no sample has a score in both")
    tasks = [a.by_sample[sample][0].task for sample in common]
    first, second = (_values(result, common, "reward") for result in (a, b))
    rewards = [fmean(two) - fmean(one) for one, two in zip(first, second, strict=True)]
    return Comparison(
        identity=b.identity,
        players=(a.player, b.player),
        pairs=len(common),
        tasks=len(set(tasks)),
        unpaired=len(set(a.by_sample) ^ set(b.by_sample)),
        reward=_compared(a, b, common, tasks, "reward"),
        success=_compared(a, b, common, tasks, "success"),
        steps=_compared(a, b, common, tasks, "steps"),
        better=sum(difference > 0 for difference in rewards),
        equal=sum(difference == 0 for difference in rewards),
        worse=sum(difference < 0 for difference in rewards),
        sign_test=sign_test(rewards, tasks),
        despite=found,
        unknown=unknown(a, b),
        sandboxed=(a.sandboxed, b.sandboxed),
        lost=(a.lost_share, b.lost_share),
    )


def _compared(a: Result, b: Result, common: list[str], tasks: list[str], value: str) -> ComparedRow:
    first, second = (_values(result, common, value) for result in (a, b))
    difference = difference_of_shares if value == "success" else difference_of_means
    found = difference(first, second, tasks)
    return ComparedRow(fmean(map(fmean, first)), fmean(map(fmean, second)), found.estimate, found.smallest)


def _values(result: Result, common: list[str], value: str) -> list[list[float]]:
    return [[float(getattr(one, value)) for one in result.by_sample[sample]] for sample in common]
