"""The extra `reasoning-gym`, and the questions of its tasks."""

from __future__ import annotations

import difflib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib import import_module
from itertools import accumulate
from random import Random
from typing import Any

from envport.errors import ConfigurationError, EnvironmentNotFound, InvalidOption, MissingExtra
from envport_envs.reasoning_gym.soundness import SOUND, UNSOUND, UNSOUND_PARTS

__all__ = ["Questions", "dataset"]

_MOST_DATASETS = 256
_OWN = {"seed": "use the option seed", "size": "use the options train_size and test_size"}

# No task says that its questions can be made by several threads at the same time.
_LOCK = threading.Lock()


def _factory() -> Any:
    try:
        return import_module("reasoning_gym.factory")
    except ImportError as error:
        raise MissingExtra("References with reasoning_gym:", "reasoning-gym") from error


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions of one task, or of a mixture. Questions 0 to `size - 1` have the same text in every process.

    Attributes:
        names: The tasks.
        weights: How often each is drawn, compared with the others; equally often if not given.
        size: How many questions there are.
        seed: Seed of all questions. Question `n` of a task is mostly made from `seed + n`.
        config: Settings of tasks, by the task's name.
    """

    names: tuple[str, ...]
    weights: tuple[float, ...]
    size: int
    seed: int = 0
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    def check(self, partial: bool) -> None:
        """Check that all of it can be served.

        Args:
            partial: Whether partial scores are asked for.

        Raises:
            EnvironmentNotFound: There is no such task; the message has the nearest ones.
            ConfigurationError: The task is not served, because its scorer is not sound.
            InvalidOption: The weights or the settings do not fit the tasks.
        """
        for name in self.names:
            _check_name(name)
            if partial and name in UNSOUND_PARTS:
                raise ConfigurationError(
                    f"reasoning_gym:{name} is not served with partial=true: {UNSOUND_PARTS[name]}; leave partial out"
                )
        if len(set(self.names)) < len(self.names):
            raise InvalidOption(f"reasoning_gym:{','.join(self.names)} names a task twice; use weights")
        if len(self.weights) != len(self.names) or min(self.weights) <= 0:
            raise InvalidOption(
                f"reasoning_gym: weights is {list(self.weights)}; it has to be a number above 0 for each of the tasks "
                f"{', '.join(self.names)}"
            )
        if foreign := set(self.config) - set(self.names):
            raise InvalidOption(
                f"reasoning_gym: config is for {min(foreign)!r}, which is not among the tasks: {', '.join(self.names)}"
            )
        for name in self.names:
            _check_settings(name, self.config.get(name, {}))
            self.dataset(name)

    def dataset(self, name: str) -> Any:
        """Reasoning-gym's object of a task."""
        return dataset(name, json.dumps(self.config.get(name, {}), sort_keys=True), self.size, self.seed)

    def name(self, number: int) -> str:
        """The task of a question, drawn from the weights."""
        if len(self.names) == 1:
            return self.names[0]
        drawn = Random(f"{self.seed}/{number}")
        return drawn.choices(self.names, cum_weights=[*accumulate(self.weights)])[0]

    def text(self, number: int) -> str:
        """The text of a question."""
        made = self.dataset(self.name(number))
        with _LOCK:
            return str(made[number]["question"])


@lru_cache(_MOST_DATASETS)
def dataset(name: str, settings: str, size: int, seed: int) -> Any:
    """Reasoning-gym's object of a task.

    Args:
        name: The task.
        settings: Its settings, as JSON.
        size: How many questions it has.
        seed: Its seed.

    Raises:
        InvalidOption: The task refuses the settings.
    """
    given = json.loads(settings)
    try:
        with _LOCK:
            return _factory().create_dataset(name, size=size, seed=seed, **given)
    except Exception as error:
        raise InvalidOption(
            f"reasoning_gym:{name} refuses the settings {given}: {type(error).__name__}: {' '.join(str(error).split())}"
        ) from error


def _check_name(name: str) -> None:
    known: Sequence[str] = [*_factory().DATASETS]
    if name not in known:
        near = difflib.get_close_matches(name, known, 4, 0.5)
        more = f"Near: {', '.join(near)}." if near else f"Its tasks are: {', '.join(sorted(SOUND))}."
        raise EnvironmentNotFound(f"reasoning_gym:{name}: reasoning-gym has no task {name!r}. {more}")
    if name not in SOUND:
        why = UNSOUND.get(name, "nobody has examined its scorer")
        raise ConfigurationError(f"reasoning_gym:{name} is not served: {why}")


def _check_settings(name: str, settings: Mapping[str, Any]) -> None:
    allowed = [it.name for it in fields(_factory().DATASETS[name][1]) if it.name not in _OWN]
    for key in settings:
        if key in _OWN:
            raise InvalidOption(f"reasoning_gym:{name}: {key!r} cannot be among the settings: {_OWN[key]}")
        if key not in allowed:
            raise InvalidOption(
                f"reasoning_gym:{name} has no setting {key!r}; its settings are: {', '.join(allowed) or 'none'}"
            )
