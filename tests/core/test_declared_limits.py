"""The limits that a class declares are numbers, or the class is refused."""

from __future__ import annotations

from typing import Any

import pytest

from envport import Environment
from envport.errors import InvalidEnvironment

COUNTS = ["max_steps", "max_processes"]
AMOUNTS = [
    "max_seconds", "call_seconds", "reset_seconds", "score_seconds", "close_seconds", "memory_mb", "cpu_seconds",
]  # fmt: skip


def declared(attribute: str, value: Any) -> type[Environment]:
    return type("Bounded", (Environment,), {attribute: value})


@pytest.mark.parametrize("attribute", COUNTS + AMOUNTS)
def test_what_is_no_number_is_refused_by_name(attribute: str) -> None:
    bad = ["60", True, -1, 0, float("nan"), float("inf"), [1], *([1.5] if attribute in COUNTS else [])]
    allowed = "a whole number from 1" if attribute in COUNTS else "a finite number above 0"
    for value in bad:
        with pytest.raises(InvalidEnvironment) as refused:
            declared(attribute, value)
        assert str(refused.value) == f"Bounded.{attribute} is {value!r}; allowed: {allowed}, or None"


@pytest.mark.parametrize("attribute", COUNTS + AMOUNTS)
def test_numbers_none_and_what_is_computed_are_taken(attribute: str) -> None:
    for value in (None, 1, property(lambda self: 3), *([0.5] if attribute in AMOUNTS else [])):
        assert vars(declared(attribute, value))[attribute] is value
