"""Episodes that the tests of the page, its picture and its bench play beside it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from envport_bridges.rollouts.backend import RolloutTarget
from envport_bridges.rollouts.sync import Rollout, Rollouts

_APART = itertools.count()

WATCH = """
() => {
  window.shown = {};
  const look = () => {
    const now = Date.now();
    for (const step of document.querySelectorAll('[data-step]')) window.shown[step.dataset.step] ??= now;
  };
  new MutationObserver(look).observe(document.body, {subtree: true, childList: true});
  look();
}
"""
"""A script that notes in `window.shown` when each call of an episode is in the page, in milliseconds of Unix time."""


@contextmanager
def playing(url: str, environment: str = "catch", token: str | None = None, **choice: Any) -> Iterator[Rollout]:
    """An episode that a client plays over the gateway's socket. `labels` are its labels."""
    labels = {"run": f"test-{next(_APART)}", **choice.pop("labels", {})}
    target = RolloutTarget(f"{url}/environments/{environment}", token, labels=tuple(labels.items()))
    with Rollouts(target).open(**choice) as episode:
        yield episode


def play_out(episode: Rollout, *moves: str) -> None:
    """Play an episode of `catch` to its end: these moves, then none."""
    for move in itertools.islice(itertools.chain(moves, itertools.repeat("stay")), 9):
        episode.call("move", {"direction": move})
