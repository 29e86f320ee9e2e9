"""Several environments in one run: by weight, by `rollout_func`, and opened ahead."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from places import Place
from test_trl_rollout import async_samples
from test_trl_rollout import train as train_by_rollout_func
from test_trl_training import DONE, logged
from tiny_model import calls

from envport.errors import ConfigurationError, UnknownTask
from envport_bridges.trl import Combination, EnvironmentSpec, combine


def play(text: str, turn: int) -> str:
    """Guesses right at the first turn where there is something to guess, and goes where there is not."""
    if turn:
        return DONE
    listing, _, rest = text.partition("\n</tools>")
    if '"name": "guess"' in listing:
        return calls(("guess", json.dumps({"number": int(rest.split("Guess number ")[1][0])})))
    return calls(("go", "{}"))


def both(place: Place, **options: Any) -> Combination:
    return combine({"guess": place.spec("guess", num_tasks=4), "last": place.spec("last", num_tasks=4)}, **options)


def counts(combination: Combination) -> dict[str, int]:
    return dict(Counter(combination.train_dataset["environment"][:]))


def test_weights_say_how_much_of_the_dataset_each_environment_gets(place: Place):
    assert counts(both(place)) == {"guess": 4, "last": 4}
    assert counts(both(place, weights={"guess": 3, "last": 1})) == {"guess": 6, "last": 2}
    thirds = combine({name: place.spec("guess", num_tasks=1) for name in "abc"}, weights={"a": 1, "b": 1, "c": 2})
    with pytest.raises(ConfigurationError, match="of 3 rows, none would be of"):
        counts(combine({name: place.spec("guess", num_tasks=1) for name in "abc"}, weights={"a": 1, "b": 1, "c": 9}))
    assert sum(counts(thirds).values()) == 3


def test_tasks_come_again_with_other_seeds_where_a_weight_asks_for_more_than_there_are(place: Place):
    of_one = combine(
        {"guess": place.spec("guess", indices=[2, 3]), "last": place.spec("last", num_tasks=6)},
        weights={"guess": 3, "last": 1},
    )
    rows = [row for row in of_one.rows if row["environment"] == "guess"]
    assert Counter(row["task_index"] for row in rows) == {2: 3, 3: 3}
    assert len({row["seed"] for row in rows}) == 6


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"guess": 1}, "weights are given for 'guess'; they have to be given for each of 'guess', 'last'"),
        ({"guess": 1, "last": 1, "more": 1}, "they have to be given for each of 'guess', 'last'"),
        ({"guess": 0, "last": 1}, "the weight of 'guess' is 0; it has to be a number above 0"),
        ({"guess": 1, "last": float("nan")}, "the weight of 'last' is nan; it has to be a number above 0"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights: dict[str, float], message: str):
    with pytest.raises(ConfigurationError, match=message):
        both(Place(), weights=weights)


def test_they_train_by_rollout_func(place: Place, tmp_path: Path):
    combination = both(place, weights={"guess": 1, "last": 1})
    trainer = train_by_rollout_func(tmp_path, combination, play, max_steps=4)
    assert logged(trainer, "rewards/episode_reward/mean") == [1.0] * 4
    assert logged(trainer, "tools/failure_frequency") == [0.0] * 4
    assert {('"name": "guess"' in text) for text in trainer.seen} == {True, False}


def test_the_next_episodes_of_each_are_opened_ahead(place: Place):
    combination = both(place)
    factories = combination.opened_ahead(num_generations=2, episodes=4)
    instances = {name: [factory() for _ in range(2)] for name, factory in factories.items()}
    for row in combination.train_dataset:
        name = row.pop("environment")
        for instance in instances[name]:
            instance.reset(**row)
    # Every reset of each but its very first found its episode open.
    assert {name: factory._ahead.foreseen for name, factory in factories.items()} == {"guess": 7, "last": 7}


def test_the_async_worker_plays_them(place: Place):
    combination = both(place)
    _, samples = async_samples(combination, combination.opened_ahead(4, 6), play, 8)
    # Each is rewarded under its own name, and has none under the other's.
    rewards = [[value for key, value in sample.metrics.items() if key.startswith("rewards/")] for sample in samples]
    assert [[value for value in given if not math.isnan(value)] for given in rewards] == [[1.0]] * 8


def test_their_other_tasks_are_for_evaluation():
    combination = combine({"one": EnvironmentSpec("catch", num_tasks=2), "two": EnvironmentSpec("catch", num_tasks=2)})
    rows = combination.eval_dataset("test", num_tasks=3)
    assert Counter(rows["environment"][:]) == {"one": 3, "two": 3}
    assert set(rows["split"][:]) == {"test"}
    with pytest.raises(UnknownTask, match="has no split 'nowhere'"):
        combination.eval_dataset("nowhere")
