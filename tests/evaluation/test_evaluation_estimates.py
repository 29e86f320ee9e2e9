"""Estimates against values worked out by hand or published."""

from __future__ import annotations

import math

import pytest

from envport_bridges.evaluation.intervals import Estimate, mean_of, pass_at, pass_hat, share_of


def test_students_interval_of_independent_samples():
    # n = 4, mean 2.5, s = 1.2910, t(3, 0.975) = 3.1824.
    found = mean_of([1.0, 2.0, 3.0, 4.0], ["a", "b", "c", "d"])
    half = 3.182446 * math.sqrt(5 / 3) / 2
    assert found.mean == 2.5
    assert (found.low, found.high) == (pytest.approx(2.5 - half, abs=1e-4), pytest.approx(2.5 + half, abs=1e-4))


def test_samples_of_one_task_are_not_independent():
    values = [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0]
    apart = mean_of(values, list("abcdefgh"))
    together = mean_of(values, list("aaabbbcd"))
    assert apart.mean == together.mean
    assert apart.low is not None
    assert together.low is not None
    assert together.low < apart.low


def test_one_task_has_no_interval():
    assert mean_of([1.0, 0.0], ["a", "a"]) == Estimate(0.5)
    assert mean_of([], []) == Estimate(None)


def test_wilsons_interval_stays_within_its_bounds():
    found = share_of([1.0] * 10, [str(index) for index in range(10)])
    assert found.high == 1.0
    assert found.low is not None
    assert 0.6 < found.low < 0.75


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
