"""Results of the same evaluation with several seeds, as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from envport_bridges.evaluation.losses import LostEpisode
from envport_bridges.evaluation.results import PlayedEpisode, Result

__all__ = ["pooled"]


def pooled(results: Sequence[Result]) -> Result:
    """All episodes of results that differ in nothing but their seed.

    A task that was played with several seeds stays one task, so that the intervals count it once as far as its episodes
    agree. Where the environment has no tasks, each seed makes episodes of its own.

    Args:
        results: The result of each seed.
    """
    first = results[0]
    return Result(
        identity=replace(first.identity, seed=None),
        player=first.player,
        status=next((one.status for one in results if one.status != "success"), "success"),
        epochs=first.epochs,
        played=tuple(_of_seed(episode, result) for result in results for episode in result.played),
        lost=tuple(_lost_of_seed(episode, result) for result in results for episode in result.lost),
        missing=sum(result.missing for result in results),
        settings=first.settings,
        sandboxed=first.sandboxed,
        seeds=tuple(result.identity.seed for result in results if result.identity.seed is not None),
    )


def _of_seed(episode: PlayedEpisode, result: Result) -> PlayedEpisode:
    return replace(episode, **_names(episode, result))


def _lost_of_seed(episode: LostEpisode, result: Result) -> LostEpisode:
    return replace(episode, **_names(episode, result))


def _names(episode: PlayedEpisode | LostEpisode, result: Result) -> dict[str, str]:
    sample = f"{episode.sample}, seed {result.identity.seed}"
    return {"sample": sample, "task": episode.task if result.identity.split is not None else sample}
