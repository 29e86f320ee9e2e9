"""The game follows envport's contract, can be won, and is not won by playing at random."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from envport.checker import check_environment
from envport_bridges.rollouts import Rollout, Rollouts

from my_game.environment import MyGameEnvironment

REFERENCE = f"{Path(__file__).parents[1]}/my_game/environment.py:MyGameEnvironment"


def play(episode: Rollout, moves: Iterable[str]) -> float | None:
    """Plays moves until the episode has ended, and returns the reward."""
    with episode:
        for kind in moves:
            if episode.outcome is None:
                episode.call("move", {"kind": kind})
    return episode.reward


def test_it_keeps_the_contract() -> None:
    check_environment(MyGameEnvironment)


def test_the_path_of_a_task_wins() -> None:
    rollouts = Rollouts(REFERENCE)
    for split in ("train", "test"):
        for number, task in enumerate(rollouts.tasks(split, limit=5).tasks):
            assert play(rollouts.open(split=split, task=number, seed=0), task.metadata["moves"]) == 1.0


def test_playing_at_random_earns_next_to_nothing() -> None:
    rollouts, rng = Rollouts(REFERENCE), random.Random(0)
    won = 0
    for seed in range(100):
        moves = rng.choices(["add", "double", "triple"], k=20)
        won += play(rollouts.open(split="train", seed=seed), moves) == 1.0
    assert won <= 15


def test_no_path_is_in_both_splits() -> None:
    rollouts = Rollouts(REFERENCE)
    train, test = ({task.id for task in rollouts.tasks(split, limit=1000).tasks} for split in ("train", "test"))
    assert train
    assert test
    assert not train & test


def test_the_same_task_and_seed_give_the_same_episode() -> None:
    rollouts = Rollouts(REFERENCE)
    first, again = (rollouts.open(split="train", task=3, seed=7) for _ in range(2))
    with first, again:
        assert first.observation.text == again.observation.text
