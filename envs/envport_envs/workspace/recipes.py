"""Recipes: operations one after another, with inputs that tell them apart."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from envport_envs.workspace.operations import FINALS, OPERATIONS, WORDS, ListOperation

__all__ = ["Recipe", "RecipeStep", "draw_inputs", "draw_recipe", "draw_step"]

_LARGEST = 60
_LONGEST_LIST = 14
_HIDDEN = 24
_FEWEST_RESULTS = 6


@dataclass(frozen=True, slots=True)
class RecipeStep:
    """An operation with its parameter."""

    operation: ListOperation
    n: int | str | None = None

    @property
    def words(self) -> str:
        """What a player is told."""
        return self.operation.words.format(n=self.n)

    def apply(self, values: Any) -> Any:
        """Do it."""
        return self.operation.function(values) if self.n is None else self.operation.function(values, self.n)

    def call(self, values: str = "values") -> str:
        """The source of a call of the operation's function."""
        return f"{self.operation.function.__name__}({values}{'' if self.n is None else f', {self.n!r}'})"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Steps that are done one after another with a list, and what is made of it in the end.

    Attributes:
        items: What is in the list: `numbers` or `words`.
        steps: The steps.
        final: What is made of the list.
    """

    items: str
    steps: tuple[RecipeStep, ...]
    final: RecipeStep

    def result(self, values: list[Any]) -> Any:
        """What becomes of a list."""
        for step in self.steps:
            values = step.apply(values)
        return self.final.apply(values)

    def results(self, inputs: Sequence[list[Any]]) -> list[str]:
        """What becomes of each list, as JSON."""
        return [json.dumps(self.result(values), sort_keys=True) for values in inputs]

    def numbered(self) -> str:
        """The steps, as a numbered list."""
        return "\n".join(f"{number}. {step.words}" for number, step in enumerate(self.steps, 1))

    def functions(self) -> str:
        """The source of the operations' functions, each once."""
        used = dict.fromkeys(step.operation.function for step in (*self.steps, self.final))
        return "\n\n".join(inspect.getsource(function) for function in used)

    def without(self, place: int) -> Recipe:
        """The same without one step."""
        return replace(self, steps=self.steps[:place] + self.steps[place + 1 :])


def draw_step(rng: Random, items: str) -> RecipeStep:
    """A step for a list of such items."""
    operation = rng.choice(OPERATIONS[items])
    return RecipeStep(operation, rng.choice(operation.choices) if operation.choices else None)


def draw_inputs(rng: Random, items: str, number: int) -> list[list[Any]]:
    """Lists of such items."""
    return [_draw_list(rng, items) for _ in range(number)]


def draw_recipe(rng: Random, steps: int) -> tuple[Recipe, list[list[Any]]]:
    """A recipe, and hidden inputs. On some of these, leaving any step out gives another result."""
    items = rng.choice(("numbers", "words"))
    while True:
        drawn = tuple(draw_step(rng, items) for _ in range(steps))
        recipe = Recipe(items, drawn, RecipeStep(rng.choice(FINALS[items])))
        inputs = [[], *draw_inputs(rng, items, _HIDDEN)]
        results = recipe.results(inputs)
        if len({*results}) < _FEWEST_RESULTS:
            continue
        if all(recipe.without(place).results(inputs) != results for place in range(steps)):
            return recipe, inputs


def _draw_list(rng: Random, items: str) -> list[Any]:
    length = rng.randint(1, _LONGEST_LIST)
    if items == "words":
        return rng.choices(rng.sample(WORDS, 8), k=length)
    largest = rng.choice((5, 20, _LARGEST))
    return [rng.randint(-largest, largest) for _ in range(length)]
