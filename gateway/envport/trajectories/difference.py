"""The first difference between two trajectories: at which call, at which place of it, and what stands there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from typing import Any, Final, cast

from envport.types import StepRecord, Trajectory

__all__ = ["ABSENT", "Absent", "Difference", "first_difference"]

_TIMES = frozenset({"started_at", "seconds"})


class Absent(Enum):
    """What stands where one of two trajectories has nothing."""

    ABSENT = "nothing"


ABSENT: Final = Absent.ABSENT


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two trajectories differ first.

    Attributes:
        step: Number of the call, from 1; 0 for what the player saw first.
        path: JSON path within the call's record, such as `$.observation.content[0].text`. If `step` is 0, and for the
            score of the final state, it is one within the trajectory: `$.first_observation.content[0].text`.
        first: What stands there in the first trajectory; `ABSENT` if nothing does.
        second: The same of the second one.
    """

    step: int
    path: str
    first: Any
    second: Any


def first_difference(a: Trajectory, b: Trajectory) -> Difference | None:
    """Where two trajectories differ first; `None` if they are equal.

    Compared are the first observation, all that is recorded of each call except times, and the score of the final
    state. Handles, labels and how an episode was ended from outside do not count.

    Args:
        a: The first trajectory.
        b: The second one.
    """
    for step, path, first, second in _parts(a, b):
        found = _differing(first, second, path)
        if found is not None:
            return Difference(step, *found)
    return None


def _parts(a: Trajectory, b: Trajectory) -> Iterator[tuple[int, str, Any, Any]]:
    yield (
        0,
        "$.first_observation",
        a.first_observation.model_dump(mode="json"),
        b.first_observation.model_dump(mode="json"),
    )
    number = 0
    for number, pair in enumerate(zip_longest(a.steps, b.steps), 1):
        first, second = map(_plain, pair)
        yield number, "$", first, second
    yield number, "$.episode.score", a.episode.score, b.episode.score


def _plain(step: StepRecord | None) -> Any:
    return step.model_dump(mode="json", exclude={*_TIMES, "index"}) if step is not None else ABSENT


def _differing(first: Any, second: Any, path: str) -> tuple[str, Any, Any] | None:
    """The first place at which two JSON values differ, and what stands there."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        one, other = cast("Mapping[str, Any]", first), cast("Mapping[str, Any]", second)
        for key in {**one, **other}:
            if (found := _differing(one.get(key, ABSENT), other.get(key, ABSENT), f"{path}{_member(key)}")) is not None:
                return found
        return None
    if isinstance(first, list) and isinstance(second, list):
        pairs = zip_longest(cast("Sequence[Any]", first), cast("Sequence[Any]", second), fillvalue=ABSENT)
        for place, (one, other) in enumerate(pairs):
            if (found := _differing(one, other, f"{path}[{place}]")) is not None:
                return found
        return None
    # In Python, True is 1; in JSON, it is not.
    same = first == second and isinstance(first, bool) == isinstance(second, bool)
    return None if same else (path, cast("Any", first), second)


def _member(key: str) -> str:
    """A member of an object in a JSON path (RFC 9535)."""
    if key.isidentifier():
        return f".{key}"
    escaped = key.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"
