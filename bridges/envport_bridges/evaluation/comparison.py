"""Compares two results of one environment by their paired differences. Refuses results that do not match."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from envport.errors import InvalidOption
from envport_bridges.evaluation.intervals import Estimate, mean_of
from envport_bridges.evaluation.results import Identity, PlayedEpisode, Result

__all__ = ["ComparedRow", "Comparison", "compare_results"]

# Fields that may differ between comparable results.
_FREE = frozenset({"envport"})


@dataclass(frozen=True)
class ComparedRow:
    """One compared measure.

    Attributes:
        a: The mean of the first result, over the samples that both results have.
        b: The mean of the second result, over the same samples.
        difference: The mean of the samples' differences, second minus first.
    """

    a: float
    b: float
    difference: Estimate


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

    def document(self) -> dict[str, Any]:
        """The comparison as JSON."""
        return asdict(self)


def compare_results(a: Result, b: Result) -> Comparison:
    """Compare two results.

    Raises:
        InvalidOption: They measured different things (the message says which), or have no sample in common.
    """
    _require_equal(a.identity, b.identity)
    common = [sample for sample in a.by_sample if sample in b.by_sample]
    for sample in common:
        if a.by_sample[sample][0].seed != b.by_sample[sample][0].seed:
            raise InvalidOption(f"these results cannot be compared: sample {sample!r} was played with different seeds")
        tools = {one.fingerprint for one in (*a.by_sample[sample], *b.by_sample[sample])} - {None}
        if len(tools) > 1:
            raise InvalidOption(f"these results cannot be compared: sample {sample!r} was played with different tools")
    if not common:
        raise InvalidOption("these results cannot be compared: no sample has a score in both")
    pairs = [(a.by_sample[sample], b.by_sample[sample]) for sample in common]
    reward = [_mean(second, "reward") - _mean(first, "reward") for first, second in pairs]
    return Comparison(
        identity=b.identity,
        players=(a.player, b.player),
        pairs=len(pairs),
        tasks=len({first[0].task for first, _ in pairs}),
        unpaired=len(set(a.by_sample) ^ set(b.by_sample)),
        reward=_row(pairs, "reward"),
        success=_row(pairs, "success"),
        steps=_row(pairs, "steps"),
        better=sum(difference > 0 for difference in reward),
        equal=sum(difference == 0 for difference in reward),
        worse=sum(difference < 0 for difference in reward),
    )


def _require_equal(a: Identity, b: Identity) -> None:
    first, second = asdict(a), asdict(b)
    differing = [key for key in first if key not in _FREE and first[key] != second[key]]
    if differing:
        what = "; ".join(f"{key} is {_short(first[key])} in A and {_short(second[key])} in B" for key in differing)
        hint = " (the players were shown different tools)" if "fingerprint" in differing else ""
        raise InvalidOption(f"these results cannot be compared: {what}{hint}")


def _short(value: Any) -> str:
    text = repr(value)
    return f"{text[:13]}…'" if isinstance(value, str) and len(value) == 64 else text


def _row(pairs: list[tuple[list[PlayedEpisode], list[PlayedEpisode]]], value: str) -> ComparedRow:
    firsts, seconds = ([_mean(pair[side], value) for pair in pairs] for side in (0, 1))
    differences = [second - first for first, second in zip(firsts, seconds, strict=True)]
    tasks = [first[0].task for first, _ in pairs]
    return ComparedRow(sum(firsts) / len(firsts), sum(seconds) / len(seconds), mean_of(differences, tasks))


def _mean(played: list[PlayedEpisode], value: str) -> float:
    return sum(float(getattr(one, value)) for one in played) / len(played)
