"""What is wrong with results, so that nobody takes their scores for the player's ability."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envport_bridges.evaluation.results import Result
from envport_bridges.evaluation.rows import short

__all__ = ["complaints"]

_MOST_TEXT = 600
_HINT = " (in its sandbox, an agent reads only what it is allowed to: --agent-reads PATH)"


def complaints(results: Sequence[Result], max_lost: float) -> list[str]:
    """One message for each reason why the results are no measurement.

    Args:
        results: The results.
        max_lost: Share of lost episodes that is allowed.
    """
    # What is wrong with pooled results is said of the result of a seed.
    return [text for result in results if not result.seeds for text in _of(result, max_lost)]


def _of(result: Result, max_lost: float) -> Iterator[str]:
    name = f"{result.identity.environment}, {short(result.player, 120)}"
    if result.lost_share > max_lost:
        lost, all_ = len(result.lost), len(result.lost) + len(result.played)
        yield (
            f"{name}: {lost} of {all_} episodes were lost ({result.lost_share:.0%}); allowed: {max_lost:.0%} "
            "(--max-lost). A player may have caused it to have its losses left out: read the worst case. "
            f"Play them again: envport eval --resume {result.log}"
        )
    if (broke := result.broken_setup()) is not None:
        yield (
            f"{name}: the player failed before its first step in all {len(result.played)} episodes, so its set-up is "
            f"broken: {short(broke, _MOST_TEXT)}{_HINT if result.sandboxed else ''}"
        )
