"""Estimates against values worked out by hand or published. How often intervals cover is in the tests of coverage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import pytest
from inspect_ai.scorer import SampleScore, Score, ci

from envport_bridges.evaluation.intervals import Estimate, mean_of, pass_at, pass_hat, share_of
from envport_bridges.evaluation.paired import PairedDifference, difference_of_means, difference_of_shares, sign_test


def once(*values: float) -> list[list[float]]:
    """Samples that were attempted once."""
    return [[value] for value in values]


def names(count: int) -> list[str]:
    """As many different tasks."""
    return [f"task {index}" for index in range(count)]


def ends(estimate: Estimate) -> tuple[float, float]:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


def width(estimate: Estimate) -> float:
    low, high = ends(estimate)
    return high - low


def test_students_interval_of_independent_samples():
    # n = 4, mean 2.5, s = 1.2910, t(3, 0.975) = 3.1824.
    found = mean_of(once(1.0, 2.0, 3.0, 4.0), list("abcd"))
    half = 3.182446 * math.sqrt(5 / 3) / 2
    assert found.mean == 2.5
    assert ends(found) == (pytest.approx(2.5 - half, abs=1e-4), pytest.approx(2.5 + half, abs=1e-4))


def test_samples_of_one_task_are_not_independent():
    values = once(0.0, 0.1, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0)
    apart = mean_of(values, list("abcdefgh"))
    together = mean_of(values, list("aaabbbcd"))
    assert apart.mean == together.mean
    assert width(together) > width(apart)


def test_the_interval_of_a_mean_is_inspects():
    values, tasks = [0.0, 0.5, 1.0, 2.0, 7.5, 1.0], list("aabbcd")
    scores = [
        SampleScore(score=Score(value=value), sample_metadata={"task": task})
        for value, task in zip(values, tasks, strict=True)
    ]
    bounds = cast("dict[str, float]", ci(cluster="task")(scores))
    assert ends(mean_of(once(*values), tasks)) == pytest.approx((bounds["lower"], bounds["upper"]))


def test_one_task_has_no_interval():
    assert mean_of(once(1.0, 0.0), ["a", "a"]) == Estimate(0.5)
    assert share_of(once(1.0, 0.0), ["a", "a"]) == Estimate(0.5)
    assert mean_of([], []) == share_of([], []) == Estimate(None)


@pytest.mark.parametrize("values", [once(*[1.0] * 5), once(*[0.7] * 3), [[1.0, 2.0, 3.0]] * 4])
def test_a_mean_without_variance_has_no_interval(values: list[list[float]]):
    """That five rewards are equal does not say that the sixth is."""
    found = mean_of(values, names(len(values)))
    assert (found.low, found.high) == (None, None)
    assert found.mean == pytest.approx(sum(values[0]) / len(values[0]))


def test_a_mean_of_two_values_has_the_interval_of_their_share():
    outcomes = [[1.0], [1.0], [0.0], [1.0], [0.0], [1.0]]
    share = share_of(outcomes, names(6))
    mean = mean_of([[2 * one - 1 for one in sample] for sample in outcomes], names(6))
    assert (mean.mean, *ends(mean)) == pytest.approx(tuple(2 * one - 1 for one in (share.mean, *ends(share))))


def test_the_share_of_independent_outcomes_has_wilsons_interval():
    # Newcombe, Statistics in Medicine 17 (1998), table I, method 3: 81 of 263, and 15 of 148.
    for successes, total, interval in ((81, 263, (0.2553, 0.3662)), (15, 148, (0.0624, 0.1605))):
        found = share_of(once(*[1.0] * successes, *[0.0] * (total - successes)), names(total))
        assert ends(found) == pytest.approx(interval, abs=1e-4)


def test_the_interval_of_a_share_holds_the_share():
    for total in range(2, 60):
        for good in (0, 1, total - 1, total):
            found = share_of([[float(task < good)] for task in range(total)], names(total))
            low, high = ends(found)
            assert found.mean is not None
            assert 0 <= low <= found.mean <= high <= 1


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_tasks_that_come_again_with_one_outcome_tell_no_more_than_the_tasks(outcome: float):
    again = share_of(once(*[outcome] * 30), names(10) * 3)
    attempts = share_of([[outcome] * 3] * 10, names(10))
    assert again == attempts == share_of(once(*[outcome] * 10), names(10))
    assert width(again) == pytest.approx(0.2775, abs=1e-4)


def test_attempts_that_differ_within_each_task_count_apart():
    """Twenty tasks with ten attempts, half of them good, tell as much as two hundred tasks."""
    apart = share_of(once(*[float(index % 2) for index in range(200)]), names(200))
    for numbers in ([5], [5, 6, 4, 7, 3]):
        good = numbers * (20 // len(numbers))
        attempts = [[float(place < number) for place in range(10)] for number in good]
        assert ends(share_of(attempts, names(20))) == pytest.approx(ends(apart), abs=0.01)


def test_attempts_that_agree_within_each_task_count_once():
    agreeing = [[float(task % 4 == 0)] * 5 for task in range(20)]
    assert ends(share_of(agreeing, names(20))) == pytest.approx(
        ends(share_of(once(*[sample[0] for sample in agreeing]), names(20)))
    )


@pytest.mark.parametrize(
    ("first", "second", "mean"),
    [
        ([0, 0, 0, 0, 1], [1, 1, 1, 0, 1], 0.6),
        ([0] * 5, [1] * 5, 1.0),
        ([1] * 5, [0] * 5, -1.0),
        ([1, 0, 1, 0, 1], [1, 0, 1, 0, 1], 0.0),
    ],
)
def test_a_difference_of_shares_stays_within_its_bounds(first: list[float], second: list[float], mean: float):
    found = difference_of_shares(once(*first), once(*second), names(5)).estimate
    low, high = ends(found)
    assert found.mean == pytest.approx(mean)
    assert -1 <= low < high <= 1
    assert low <= mean <= high


def test_a_difference_of_shares_is_bonett_and_prices():
    # 7 of 21 pairs are better and 1 is worse: shares of 8/23 and 2/23, so 0.2609 with a standard error of 0.1263.
    pairs = [(1, 1)] + [(0, 1)] * 7 + [(1, 0)] + [(0, 0)] * 12
    first, second = zip(*pairs, strict=True)
    found = difference_of_shares(once(*first), once(*second), names(21))
    assert ends(found.estimate) == pytest.approx((0.0134, 0.5084), abs=1e-4)
    assert found.smallest == pytest.approx(2.801585 * 0.126272, abs=1e-4)


def test_a_difference_without_variance_has_no_interval():
    found = difference_of_means(once(1.0, 2.0, 3.0), once(2.0, 3.0, 4.0), names(3))
    assert found == PairedDifference(Estimate(1.0), None)


def test_a_difference_of_two_values_is_that_of_their_shares():
    first, second = [0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]
    share = difference_of_shares(once(*first), once(*second), names(4))
    mean = difference_of_means(once(*[4 * one - 2 for one in first]), once(*[4 * one - 2 for one in second]), names(4))
    assert ends(mean.estimate) == pytest.approx([4 * end for end in ends(share.estimate)])
    assert share.smallest is not None
    assert mean.smallest == pytest.approx(4 * share.smallest)


def test_the_smallest_difference_follows_from_the_standard_error():
    # d = 1, 2, 3, 4: the standard error is 0.6455, t(3, 0.975) is 3.1824, and 0.8416 / 1.96 is the part for the power.
    found = difference_of_means(once(*[0.0] * 4), once(1.0, 2.0, 3.0, 4.0), names(4))
    assert found.smallest == pytest.approx(3.182446 * 0.645497 * (1 + 0.841621 / 1.959964), abs=1e-4)
    few = difference_of_shares(once(0.0, 1.0), once(1.0, 0.0), names(2))
    assert few.smallest is None


@pytest.mark.parametrize(
    ("differences", "counts", "p"),
    [
        ([1.0] * 6, (6, 0, 0), 2 / 64),
        ([1.0] * 7 + [-1.0], (7, 0, 1), 18 / 256),
        ([1.0, -1.0], (1, 0, 1), 1.0),
        ([0.0, 0.0], (0, 2, 0), 1.0),
    ],
)
def test_the_sign_test_is_exact(differences: Sequence[float], counts: tuple[int, int, int], p: float):
    found = sign_test(differences, names(len(differences)))
    assert (found.better, found.equal, found.worse) == counts
    assert found.p == pytest.approx(p)


def test_the_sign_test_counts_tasks():
    found = sign_test([1.0] * 6 + [0.1, -0.1], ["a"] * 3 + ["b"] * 3 + ["c"] * 2)
    assert (found.better, found.equal, found.worse, found.p) == (2, 1, 0, 0.5)
    # 0.1 + 0.2 - 0.3 is 5.6e-17 in floating point.
    found = sign_test([0.01, -0.01, 0.1, 0.2, -0.3], ["a", "b", "c", "c", "c"])
    assert (found.better, found.equal, found.worse) == (1, 1, 1)


def test_pass_at_k_and_pass_hat_k_count_draws_without_replacement():
    attempts = [[True, True, False, False], [False] * 4]
    assert pass_at(attempts, 1) == pass_hat(attempts, 1) == 0.25
    assert pass_at(attempts, 2) == pytest.approx((1 - 1 / 6) / 2)
    assert pass_hat(attempts, 2) == pytest.approx((1 / 6) / 2)
    assert pass_at(attempts, 4) == 0.5
    assert pass_hat(attempts, 4) == 0.0


def test_samples_with_too_few_attempts_are_left_out():
    assert pass_at([[True], [True, False]], 2) == 1.0
    assert pass_at([[True]], 2) is None
