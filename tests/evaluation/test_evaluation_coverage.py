"""How often 95% intervals hold the truth, by simulation: as often as they say, or nearly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy
import pytest

from envport_bridges.evaluation.intervals import Estimate, mean_of, share_of
from envport_bridges.evaluation.paired import difference_of_means, difference_of_shares

LEAST, MOST = 0.90, 0.98
DRAWS = 500
SHARES = (0.05, 0.3, 0.8)


@dataclass(frozen=True)
class Design:
    """An evaluation: tasks whose difficulty varies, played again with other seeds, and attempted several times.

    Attributes:
        tasks: Number of tasks.
        seeds: How many samples there are of each task.
        epochs: How many attempts at each sample.
        alike: The correlation of two outcomes of one task.
    """

    tasks: int
    seeds: int
    epochs: int
    alike: float

    @property
    def names(self) -> list[str]:
        return [str(task) for task in range(self.tasks) for _ in range(self.seeds)]

    def chances(self, draws: numpy.random.Generator, share: float) -> numpy.ndarray:
        """The probability of success at each task, which has a beta distribution."""
        scale = (1 - self.alike) / self.alike
        return draws.beta(share * scale, (1 - share) * scale, self.tasks)

    def outcomes(self, draws: numpy.random.Generator, chances: numpy.ndarray) -> list[list[float]]:
        of_samples = numpy.repeat(chances, self.seeds)[:, None]
        return (draws.random((len(of_samples), self.epochs)) < of_samples).astype(float).tolist()


DESIGNS = [
    Design(tasks, seeds, epochs, alike)
    for tasks in (10, 30, 100)
    for seeds, epochs, alike in ((1, 4, 0.4), (1, 4, 0.8), (3, 1, 0.6))
]
DESIGNS += [Design(20, 5, 1, 0.95)]
SMALL = [design for design in DESIGNS if design.tasks < 100]

Draw = Callable[[Design, numpy.random.Generator], tuple[Estimate, float]]
"""One evaluation: its interval, and the truth."""


def coverage(draw: Draw, design: Design, number: int = DRAWS) -> float:
    """The share of evaluations whose interval holds the truth. One that is unknown claims nothing, and holds it."""
    draws = numpy.random.default_rng(1)
    return sum(holds(*draw(design, draws)) for _ in range(number)) / number


def holds(one: Estimate, truth: float) -> bool:
    return one.low is None or one.high is None or one.low <= truth <= one.high


def share_at(share: float) -> Draw:
    return lambda design, draws: (share_of(design.outcomes(draws, design.chances(draws, share)), design.names), share)


@pytest.mark.parametrize("tasks", [10, 20, 50, 100])
def test_the_share_of_independent_outcomes_is_covered(tasks: int):
    """Computed, not simulated: over all numbers of successes."""
    names = [str(task) for task in range(tasks)]
    found = [share_of([[float(task < good)] for task in range(tasks)], names) for good in range(tasks + 1)]
    for share in (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.95):
        chances = [comb(tasks, good) * share**good * (1 - share) ** (tasks - good) for good in range(tasks + 1)]
        covering = sum(chance for chance, one in zip(chances, found, strict=True) if holds(one, share))
        assert LEAST <= covering <= MOST, (tasks, share)


@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_the_share_of_outcomes_that_share_tasks_is_covered(design: Design):
    for share in SHARES:
        assert LEAST <= coverage(share_at(share), design) <= MOST, share


def mean_of_rewards(design: Design, draws: numpy.random.Generator) -> tuple[Estimate, float]:
    """Rewards with a skewed distribution, whose mean is 1."""
    of_tasks = numpy.repeat(draws.gamma(4.0, 0.25, design.tasks), design.seeds)[:, None]
    rewards = of_tasks + draws.normal(0.0, 0.5, (len(of_tasks), design.epochs))
    return mean_of(rewards.tolist(), design.names), 1.0


def mean_of_outcomes(design: Design, draws: numpy.random.Generator) -> tuple[Estimate, float]:
    """Rewards of 0 and 10."""
    outcomes = design.outcomes(draws, design.chances(draws, 0.1))
    return mean_of([[10 * one for one in sample] for sample in outcomes], design.names), 1.0


@pytest.mark.parametrize("draw", [mean_of_rewards, mean_of_outcomes])
@pytest.mark.parametrize("design", SMALL, ids=str)
def test_a_mean_is_covered(design: Design, draw: Draw):
    assert LEAST <= coverage(draw, design) <= MOST


def difference_at(first: float, second: float, related: bool) -> Draw:
    """Two players, who find the same tasks easy or not."""

    def draw(design: Design, draws: numpy.random.Generator) -> tuple[Estimate, float]:
        chances = design.chances(draws, first)
        others = chances * second / first if related else design.chances(draws, second)
        sides = (design.outcomes(draws, one) for one in (chances, others))
        return difference_of_shares(*sides, design.names).estimate, second - first

    return draw


PAIRED = [Design(20, 1, 1, 0.5), Design(50, 1, 1, 0.5), *(design for design in SMALL if design.tasks >= 20)]


@pytest.mark.parametrize("related", [True, False])
@pytest.mark.parametrize("design", PAIRED, ids=str)
def test_a_difference_of_shares_is_covered(design: Design, related: bool):
    for first, second in ((0.6, 0.4), (0.8, 0.3)):
        assert LEAST <= coverage(difference_at(first, second, related), design) <= MOST, (first, second)


@pytest.mark.parametrize("design", [Design(10, 1, 1, 0.5), *SMALL], ids=str)
def test_a_difference_of_shares_is_covered_where_hardly_any_pair_differs(design: Design):
    """No interval is exact there, so this one is wide."""
    assert coverage(difference_at(0.3, 0.3, True), design) >= LEAST


@pytest.mark.parametrize("design", SMALL, ids=str)
def test_a_difference_of_means_is_covered(design: Design):
    def draw(design: Design, draws: numpy.random.Generator) -> tuple[Estimate, float]:
        shape = (design.tasks * design.seeds, design.epochs)
        of_tasks = numpy.repeat(draws.normal(0.5, 0.5, design.tasks), design.seeds)[:, None]
        first = draws.normal(0.0, 1.0, shape)
        second = draws.normal(0.0, 1.0, shape) + of_tasks
        return difference_of_means(first.tolist(), second.tolist(), design.names).estimate, 0.5

    assert LEAST <= coverage(draw, design) <= MOST


@pytest.mark.slow
@pytest.mark.parametrize("alike", [0.1, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("tasks", [10, 20, 50, 100])
def test_shares_are_covered_on_the_whole_and_never_badly(tasks: int, alike: float):
    designs = [Design(tasks, seeds, epochs, alike) for seeds, epochs in ((1, 4), (3, 1), (2, 2))]
    found = [coverage(share_at(share), design, 2_000) for design in designs for share in (0.05, 0.2, 0.5, 0.9)]
    assert 0.88 <= min(found) <= max(found) <= 0.99
    assert 0.93 <= sum(found) / len(found) <= 0.975
