"""Lost episodes: what a result would be at worst, and how many of them are too many.

A player may cause a fault that is not counted as its own, and have an episode left out that it has lost. So every
score with lost episodes has a worst case beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from envport.types import FaultOwner
from envport_bridges.evaluation.intervals import Estimate, mean_of, pass_at, pass_hat, share_of

__all__ = ["LostEpisode", "ScoredEpisode", "WorstCase"]


@dataclass(frozen=True)
class LostEpisode:
    """An episode that was lost to a fault, and has no score.

    Attributes:
        sample: Id of its sample.
        why: The reason, for people to read.
        fault: Who owns the fault.
        task: The task; several samples may share it.
    """

    sample: str
    why: str
    fault: FaultOwner
    task: str = ""


class ScoredEpisode(Protocol):
    """What is read of an episode that has a score."""

    @property
    def sample(self) -> str:
        """Id of its sample."""
        ...

    @property
    def task(self) -> str:
        """The task."""
        ...

    @property
    def reward(self) -> float:
        """Its reward."""
        ...

    @property
    def success(self) -> bool:
        """Whether it was a success."""
        ...


@dataclass(frozen=True)
class WorstCase:
    """A result in which every lost episode counts as failed.

    The lowest reward of an environment is not known. So a lost episode counts with the lowest reward of the scored
    ones, or with 0 if that is lower.

    Attributes:
        lost_reward: The reward that lost episodes count with.
        attempts: For each sample, the reward and the success of each attempt at it.
        tasks: The task of each sample.
    """

    lost_reward: float
    attempts: tuple[tuple[tuple[float, bool], ...], ...]
    tasks: tuple[str, ...]

    @classmethod
    def of(cls, scored: Iterable[ScoredEpisode], lost: Sequence[LostEpisode]) -> WorstCase:
        """The worst case of these episodes."""
        attempts: dict[str, list[tuple[float, bool]]] = defaultdict(list)
        tasks: dict[str, str] = {}
        lowest = 0.0
        for one in scored:
            attempts[one.sample].append((one.reward, one.success))
            tasks[one.sample] = one.task
            lowest = min(lowest, one.reward)
        for one in lost:
            attempts[one.sample].append((lowest, False))
            tasks.setdefault(one.sample, one.task)
        return cls(lowest, tuple(map(tuple, attempts.values())), tuple(tasks[sample] for sample in attempts))

    @property
    def reward(self) -> Estimate:
        """The mean reward."""
        return mean_of([[reward for reward, _ in tries] for tries in self.attempts], self.tasks)

    @property
    def success(self) -> Estimate:
        """The share of successes."""
        return share_of(self._successes(), self.tasks)

    def pass_at(self, k: int) -> float | None:
        """The probability that at least one of k attempts succeeds."""
        return pass_at(self._successes(), k)

    def pass_hat(self, k: int) -> float | None:
        """The probability that all k attempts succeed."""
        return pass_hat(self._successes(), k)

    def _successes(self) -> list[list[bool]]:
        return [[success for _, success in tries] for tries in self.attempts]
