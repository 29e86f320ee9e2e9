"""The first difference of two trajectories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Literal, cast

from envport.types import Observation, StepRecord, Trajectory

__all__ = ["Difference", "first_difference", "first_difference_of_steps", "first_difference_of_values"]

# Numbering and timing differ between any two plays.
_UNCOMPARED = {"index", "started_at", "seconds"}
_ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two trajectories differ first.

    Attributes:
        step: Number of the step, from 1; 0 for the first observation.
        path: JSON path within the step, or within the first observation: `$.observation.content[0].text`. `$` if one
            trajectory has ended.
        left: The value in the first trajectory; `None` if it has none.
        right: The value in the second one; `None` if it has none.
        only: Which trajectory has a value at all, if one of them has none.
    """

    step: int
    path: str
    left: Any
    right: Any
    only: Literal["left", "right"] | None = None


def first_difference(a: Trajectory, b: Trajectory) -> Difference | None:
    """The first step and JSON path where two trajectories differ; `None` if they do not.

    Compares the first observations, then step by step tool, arguments, observation, error, reward, end and diagnostics,
    and at last the score of the final state, with the path `$.episode.score`. Times are not compared. Of trajectories
    whose oldest calls are no longer kept, what is kept of both is compared.
    """
    if not a.dropped_steps and not b.dropped_steps:
        found = first_difference_of_values(_seen(a.first_observation), _seen(b.first_observation), 0)
        if found is not None:
            return found
    first = max(a.dropped_steps, b.dropped_steps)
    found = first_difference_of_steps(a.steps[first - a.dropped_steps :], b.steps[first - b.dropped_steps :], first)
    if found is not None:
        return found
    last = a.dropped_steps + len(a.steps)
    found = first_difference_of_values(a.episode.score, b.episode.score, last)
    return replace(found, path="$.episode.score") if found is not None else None


def first_difference_of_steps(a: Iterable[StepRecord], b: Iterable[StepRecord], before: int = 0) -> Difference | None:
    """The first difference of two series of steps.

    Args:
        a: The steps of one trajectory.
        b: Those of the other.
        before: How many steps come before these in both.
    """
    pairs: Iterable[tuple[StepRecord | None, StepRecord | None]] = zip_longest(a, b)
    for number, (left, right) in enumerate(pairs, before + 1):
        found = first_difference_of_values(_compared(left), _compared(right), number)
        if found is not None:
            return found
    return None


def first_difference_of_values(left: Any, right: Any, step: int) -> Difference | None:
    """The first difference of two values of JSON.

    Args:
        left: The one.
        right: The other.
        step: The step that they are of.
    """
    # A list of what is still to be compared, as arguments may be nested more deeply than Python calls functions.
    waiting: list[tuple[str, Any, Any]] = [("$", left, right)]
    while waiting:
        path, one, other = waiting.pop()
        same_kind = _kind(one) is _kind(other)
        if one is _ABSENT or other is _ABSENT:
            return _one_sided(step, path, one, other)
        if isinstance(one, dict) and isinstance(other, dict):
            waiting.extend(_members(path, cast("Mapping[str, Any]", one), cast("Mapping[str, Any]", other)))
        elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
            pairs = zip_longest(cast("list[Any]", one), cast("list[Any]", other), fillvalue=_ABSENT)
            waiting.extend(reversed([(f"{path}[{place}]", *pair) for place, pair in enumerate(pairs)]))
        elif not same_kind or one != other:
            # NaN is the same as NaN here, though not to Python.
            if one != one and other != other:
                continue
            return Difference(step, path, one, other)
    return None


def _one_sided(step: int, path: str, left: Any, right: Any) -> Difference:
    if left is _ABSENT:
        return Difference(step, path, None, right, "right")
    return Difference(step, path, left, None, "left")


def _members(path: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    names = [*left, *(name for name in right if name not in left)]
    members = [(f"{path}{_step_to(name)}", left.get(name, _ABSENT), right.get(name, _ABSENT)) for name in names]
    return members[::-1]


def _step_to(name: str) -> str:
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    return f".{name}" if name.isidentifier() and name.isascii() else f"['{quoted}']"


def _kind(value: object) -> type[object]:
    # 1 and 1.0 are one number in JSON, but true is none.
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)


def _compared(step: StepRecord | None) -> Any:
    return _ABSENT if step is None else step.model_dump(exclude=_UNCOMPARED)


def _seen(observation: Observation) -> dict[str, Any]:
    return observation.model_dump()
