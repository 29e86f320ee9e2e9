"""Exercises in which a program is to be repaired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from envport_envs.workspace.exercise import Exercise
from envport_envs.workspace.hidden import ProgramTest
from envport_envs.workspace.recipes import Recipe, RecipeStep, draw_inputs, draw_recipe, draw_step

__all__ = ["repair_exercise"]

_PROMPT = """\
program.py is run as python3 program.py. It reads {items} from standard input, separated by blanks or line ends. It is \
to do this with the list of them, one after the other:
{steps}
Then it is to print {final}, as JSON with sorted keys on one line. But it does something else: repair it.

Examples:
{examples}

Only program.py counts, with Python's standard library. When it is repaired, call submit."""
_ITEMS = {"numbers": ("whole numbers", "[int(word) for word in sys.stdin.read().split()]")}
_ITEMS["words"] = ("words in lower-case letters", "sys.stdin.read().split()")
_EXAMPLES = 2
_LEVELS_PER_BUG = 2
# Each is a run of the program, which takes longer than the call of a function.
_RUNS = 6


@dataclass(frozen=True, slots=True)
class _Program:
    """A recipe as a program, with bugs.

    Attributes:
        recipe: What it is to do.
        changed: What it does in place of a step, by the step's place: another one, or nothing.
        crashes: Places of steps at which it crashes.
    """

    recipe: Recipe
    changed: Mapping[int, tuple[RecipeStep, ...]] = field(default_factory=dict[int, tuple[RecipeStep, ...]])
    crashes: frozenset[int] = frozenset()

    def results(self, inputs: Sequence[list[Any]]) -> list[str]:
        """What it prints for each list; nothing if it crashes."""
        return [""] * len(inputs) if self.crashes else self._done().results(inputs)

    def source(self) -> str:
        """The program as text."""
        lines = [
            f"values = {step.call('value' if place in self.crashes else 'values')}\n"
            for place in range(len(self.recipe.steps))
            for step in self._at(place)
        ]
        return (
            "from __future__ import annotations\n\nimport json\nimport sys\n\n\n"
            f"{self._done().functions()}\n\nvalues = {_ITEMS[self.recipe.items][1]}\n{''.join(lines)}"
            f"print(json.dumps({self.recipe.final.call()}, sort_keys=True))\n"
        )

    def _at(self, place: int) -> tuple[RecipeStep, ...]:
        return self.changed.get(place, (self.recipe.steps[place],))

    def _done(self) -> Recipe:
        places = range(len(self.recipe.steps))
        return replace(self.recipe, steps=tuple(step for place in places for step in self._at(place)))


def repair_exercise(rng: Random, level: int) -> Exercise:
    """An exercise with one step more than its level, and a bug more on every second level."""
    recipe, inputs = draw_recipe(rng, level + 1)
    right = _Program(recipe)
    broken = _break(rng, recipe, inputs, bugs=(level + 1) // _LEVELS_PER_BUG)
    # Those on which the broken program is wrong come first, so that some of them are among the hidden cases.
    expected = [*zip(inputs, right.results(inputs), broken.results(inputs), strict=True)]
    chosen = sorted(expected, key=lambda case: case[1] == case[2])[:_RUNS]
    examples = [
        f"{_text(values)}\ngives {recipe.results([values])[0]}" for values in draw_inputs(rng, recipe.items, _EXAMPLES)
    ]
    return Exercise(
        prompt=_PROMPT.format(
            items=_ITEMS[recipe.items][0],
            steps=recipe.numbered(),
            final=recipe.final.words,
            examples="\n".join(examples),
        ),
        path="program.py",
        solution=right.source(),
        test=ProgramTest(["python3", "program.py"], [(_text(values), result) for values, result, _ in chosen]),
        files={"program.py": broken.source()},
    )


def _text(values: list[Any]) -> str:
    return " ".join(map(str, values))


def _break(rng: Random, recipe: Recipe, inputs: Sequence[list[Any]], bugs: int) -> _Program:
    """The program with bugs, each of which alone changes what it prints."""
    wanted = recipe.results(inputs)
    while True:
        found = [_bug(rng, recipe, place) for place in sorted(rng.sample(range(len(recipe.steps)), bugs))]
        changed = {place: steps for one in found for place, steps in one.changed.items()}
        together = _Program(recipe, changed, frozenset[int]().union(*(one.crashes for one in found)))
        if all(one.results(inputs) != wanted for one in (*found, together)):
            return together


def _bug(rng: Random, recipe: Recipe, place: int) -> _Program:
    step = recipe.steps[place]
    kind = rng.choice(("parameter", "operation", "missing", "crash"))
    if kind == "crash":
        return _Program(recipe, crashes=frozenset((place,)))
    if kind == "missing":
        return _Program(recipe, {place: ()})
    if kind == "parameter" and step.n is not None:
        return _Program(recipe, {place: (replace(step, n=rng.choice(step.operation.choices)),)})
    return _Program(recipe, {place: (draw_step(rng, recipe.items),)})
