"""Exercises in which a function is to be written."""

from __future__ import annotations

from random import Random

from envport_envs.workspace.exercise import Exercise
from envport_envs.workspace.hidden import FunctionTest
from envport_envs.workspace.recipes import Recipe, draw_inputs, draw_recipe

__all__ = ["function_exercise"]

_PROMPT = """\
Write solution.py, a Python module with a function solve(values). It gets a list of {items}, which may be empty, and \
does this with it, one after the other:
{steps}
Then it returns {final}. It must not change the list that it gets.

Examples:
{examples}

Only solution.py counts, with Python's standard library. When it is done, call submit."""
_ITEMS = {"numbers": "whole numbers", "words": "words in lower-case letters"}
_EXAMPLES = 3


def function_exercise(rng: Random, level: int) -> Exercise:
    """An exercise with one step more than its level."""
    recipe, inputs = draw_recipe(rng, level + 1)
    shown = draw_inputs(rng, recipe.items, _EXAMPLES)
    examples = [f"solve({values!r}) == {recipe.result(values)!r}" for values in shown]
    return Exercise(
        prompt=_PROMPT.format(
            items=_ITEMS[recipe.items],
            steps=recipe.numbered(),
            final=recipe.final.words,
            examples="\n".join(examples),
        ),
        path="solution.py",
        solution=_solution(recipe),
        test=FunctionTest([([values], recipe.result(values)) for values in inputs]),
    )


def _solution(recipe: Recipe) -> str:
    lines = [f"    values = {step.call()}\n" for step in recipe.steps]
    head = "from __future__ import annotations\n\n\n"
    return f"{head}{recipe.functions()}\n\ndef solve(values):\n{''.join(lines)}    return {recipe.final.call()}\n"
