"""What differs from game to game: what is served, how it is warmed up, and what has to be reached."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Lesson:
    """A game that the tiny policy learns.

    Args:
        game: Name on the gateway.
        reference: What the gateway serves.
        moves: The directions of the tool `move`.
        possible: Which moves random play chooses from, by the latest observation; all of them if not given.
        warm_up: Episodes of random moves to fine-tune on.
        kept_losses: Share of the episodes lost by random moves that the warm-up keeps; all that were won are kept.
        before: The policy has to win less than this share before it is trained.
        after: And at least this share afterwards, of held-out episodes and of tasks it has never seen.
        turns: Most moves of an episode.
        tokens: Most tokens of an episode, without the prompt.
        batches: Batches of rollouts.
        learning_rate: Of GRPO.
        mortal: The same game in processes of which some are killed; ends where the share of these goes.
    """

    game: str
    reference: str
    moves: tuple[str, ...]
    warm_up: int
    kept_losses: float
    before: float
    after: float
    turns: int
    tokens: int
    batches: int
    learning_rate: float
    possible: Callable[[str], Sequence[str]] | None = None
    mortal: str | None = None

    def choices(self, observation: str) -> Sequence[str]:
        """The moves that random play chooses from."""
        return self.possible(observation) if self.possible is not None else self.moves

    @property
    def alone(self) -> str:
        """Regular expression of what stays a token of its own: what decides the game."""
        return "|".join((r"\d", *self.moves))


def open_ways(observation: str) -> list[str]:
    """The ways that lead out of the cell of a maze, as it names them after `ways:`."""
    return re.findall("up|down|left|right", observation.partition(" ways:")[2])


CATCH = Lesson(
    game="catch",
    reference="catch=catch?rows=5&columns=5&render=words",
    moves=("left", "stay", "right"),
    warm_up=1000,
    kept_losses=0.25,
    before=0.4,
    after=0.95,
    turns=6,
    tokens=256,
    batches=100,
    learning_rate=3e-4,
    mortal=f"catch={Path(__file__).with_name('mortal.py')}:MortalCatch?mortality=",
)
MAZE = Lesson(
    game="maze",
    reference="maze=maze?rows=3&columns=3&spare=8&render=words",
    moves=("up", "down", "left", "right"),
    possible=open_ways,
    warm_up=800,
    kept_losses=1.0,
    before=0.45,
    after=0.85,
    turns=17,
    tokens=640,
    batches=100,
    learning_rate=3e-4,
)
LESSONS = {lesson.game: lesson for lesson in (CATCH, MAZE)}
