"""Several environments in one run."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from envport.errors import ConfigurationError
from envport_bridges.trl.factory import EnvironmentFactory
from envport_bridges.trl.listings import ENVIRONMENT_COLUMN
from envport_bridges.trl.rows import dataset_of
from envport_bridges.trl.spec import EnvironmentSpec
from envport_bridges.trl.trainable import Factories, Trainable

__all__ = ["Combination", "combine"]


class Combination(Trainable):
    """Several environments to train on at once; made by `combine`."""

    def __init__(self, specs: Mapping[str, EnvironmentSpec], weights: Mapping[str, float] | None = None):
        if not specs:
            raise ConfigurationError("there is nothing to combine")
        if len({spec.get_reward for spec in specs.values()}) > 1:
            raise ConfigurationError("either all of the environments own their reward (get_reward), or none")
        if len({spec.on_outage for spec in specs.values()}) > 1:
            raise ConfigurationError("all of the environments need the same on_outage: one run does one thing")
        self._specs = dict(specs)
        self._weights = _checked(weights, specs) if weights is not None else None

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of all environments, mixed. The column `environment` names the environment of each row."""
        return _mixed({name: spec.rows for name, spec in self._weighted.items()})

    @cached_property
    def _weighted(self) -> dict[str, EnvironmentSpec]:
        if self._weights is None:
            return self._specs
        total = sum(len(spec.rows) for spec in self._specs.values())
        counts = _shares([self._weights[name] for name in self._specs], total)
        if empty := [name for name, count in zip(self._specs, counts, strict=True) if not count]:
            raise ConfigurationError(
                f"of {total} rows, none would be of {empty[0]!r}: give more rows, or another weight"
            )
        return {name: spec.with_rows(count) for (name, spec), count in zip(self._specs.items(), counts, strict=True)}

    def eval_dataset(self, split: str | None = None, num_tasks: int | None = None) -> Any:
        """Rows of another split of each environment, mixed, for `GRPOTrainer(eval_dataset=...)`.

        Args:
            split: See `EnvironmentSpec.eval_dataset`.
            num_tasks: How many rows of each environment.

        Raises:
            UnknownTask: One of the environments has no such split.
        """
        specs = {name: spec.for_evaluation(split, num_tasks) for name, spec in self._specs.items()}
        return dataset_of(_mixed({name: spec.rows for name, spec in specs.items()}))

    @cached_property
    def environment_factory(self) -> dict[str, EnvironmentFactory]:
        """The factories by name."""
        return _flat({name: spec.environment_factory for name, spec in self._specs.items()})

    @cached_property
    def async_environment_factory(self) -> dict[str, EnvironmentFactory]:
        """The factories for `AsyncGRPOTrainer` by name."""
        return _flat({name: spec.async_environment_factory for name, spec in self._specs.items()})

    @property
    def scored_by_environments(self) -> bool:
        """Whether the environments own their reward."""
        return next(iter(self._specs.values())).get_reward


def combine(specs: Mapping[str, EnvironmentSpec], weights: Mapping[str, float] | None = None) -> Combination:
    """Train on several environments at once: each row's model sees the tools of its own environment only.

    Args:
        specs: The environments by the name that the column `environment` gives them.
        weights: How much of the dataset each environment gets, by the same names: `{"catch": 1, "wordle": 3}` gives
            wordle three quarters of the rows. There are as many rows as without weights; where an environment has
            fewer tasks than its share, they come again with other seeds. All rows of each if not given.

    Raises:
        ConfigurationError: There are none, or only some own their reward, or a weight is missing or not positive.
    """
    return Combination(specs, weights)


def _checked(weights: Mapping[str, float], specs: Mapping[str, EnvironmentSpec]) -> dict[str, float]:
    if weights.keys() != specs.keys():
        raise ConfigurationError(
            f"weights are given for {', '.join(map(repr, weights)) or 'nothing'}; they have to be given for each of "
            f"{', '.join(map(repr, specs))}"
        )
    for name, weight in weights.items():
        if not (math.isfinite(weight) and weight > 0):
            raise ConfigurationError(f"the weight of {name!r} is {weight}; it has to be a number above 0")
    return dict(weights)


def _shares(weights: Sequence[float], total: int) -> list[int]:
    """Whole numbers that add up to a total, as near to the weights as can be (largest remainders)."""
    exact = [weight / sum(weights) * total for weight in weights]
    counts = [math.floor(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda place: counts[place] - exact[place])
    for place in by_remainder[: total - sum(counts)]:
        counts[place] += 1
    return counts


def _mixed(rows: Mapping[str, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    named = [
        {**row, ENVIRONMENT_COLUMN: _joined(name, row.get(ENVIRONMENT_COLUMN))}
        for name, its_rows in rows.items()
        for row in its_rows
    ]
    random.Random(0).shuffle(named)
    return named


def _joined(name: str, own: str | None) -> str:
    """The name of a factory in a combination."""
    return name if own is None else f"{name}/{own}"


def _flat(factories: Mapping[str, Factories]) -> dict[str, EnvironmentFactory]:
    flat: dict[str, EnvironmentFactory] = {}
    for name, found in factories.items():
        if isinstance(found, EnvironmentFactory):
            flat[name] = found
        else:
            flat |= {_joined(name, own): factory for own, factory in found.items()}
    return flat
