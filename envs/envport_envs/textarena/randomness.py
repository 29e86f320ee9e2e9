"""Python's global `random`, which TextArena's games draw from, with a state of its own for each episode."""

from __future__ import annotations

import random
import threading
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["LOCK", "EpisodeRandom", "restored_random"]

# The global `random` and the replaced parts of nltk belong to the whole process. The lock protects both.
LOCK = threading.RLock()


@contextmanager
def restored_random() -> Generator[None]:
    """Hold the lock, and restore the state of the global `random` at the end."""
    with LOCK:
        before = random.getstate()
        try:
            yield
        finally:
            random.setstate(before)


class EpisodeRandom:
    """The state that the global `random` has while an episode is played.

    Args:
        seed: The episode's seed.
    """

    def __init__(self, seed: int):
        self._state = random.Random(seed).getstate()

    @contextmanager
    def active(self) -> Generator[None]:
        """Hold the lock, and give the global `random` the episode's state until the end."""
        with restored_random():
            random.setstate(self._state)
            try:
                yield
            finally:
                self._state = random.getstate()
