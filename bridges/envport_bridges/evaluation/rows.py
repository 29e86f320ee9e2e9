"""What tells the rows of a table of results apart."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from envport_bridges.evaluation.results import Result

__all__ = ["player_labels", "short", "telling", "told"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_FINGERPRINT = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b")
_OF_IDENTITY = ("version", "options", "split", "success_at", "seed")
_MOST = 40


def short(text: str, most: int = 60) -> str:
    """One line of text from an environment or a program, without control characters."""
    text = _CONTROL.sub(" ", text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def player_labels(results: Sequence[Result]) -> Mapping[str, str]:
    """A label for each player. A long name lacks its middle, unless another player's would then look the same."""
    names = {result.player for result in results}
    cut = {name: _without_middle(_CONTROL.sub(" ", name)) for name in names}
    same = Counter(cut.values())
    return {name: label if same[label] == 1 else _CONTROL.sub(" ", name) for name, label in cut.items()}


def telling(results: Sequence[Result]) -> list[str]:
    """The conditions that tell apart rows of one environment, and the settings that tell apart those of one player."""
    of_identity = [
        (one.identity.environment, {name: getattr(one.identity, name) for name in _OF_IDENTITY}) for one in results
    ]
    of_player = [((one.identity.environment, one.player), one.settings) for one in results]
    return [*_different(of_identity), *_different(of_player)]


def told(result: Result, name: str) -> str:
    """The value of a condition, for a cell.

    Args:
        result: The result.
        name: One of those of `telling`.
    """
    if name == "seed":
        return result.seed
    value = getattr(result.identity, name) if name in _OF_IDENTITY else result.settings.get(name)
    return "-" if value is None else _without_middle(_FINGERPRINT.sub(r"\1", _CONTROL.sub(" ", str(value))))


def _different(rows: Sequence[tuple[Any, Mapping[str, Any]]]) -> list[str]:
    """The names whose values differ between rows of the same group."""
    values: dict[tuple[Any, str], set[str]] = defaultdict(set)
    names = list(dict.fromkeys(name for _, facts in rows for name in facts))
    for group, facts in rows:
        for name in names:
            values[group, name].add(repr(facts.get(name)))
    return [name for name in names if any(len(found) > 1 for (_, of), found in values.items() if of == name)]


def _without_middle(text: str) -> str:
    half = (_MOST - 1) // 2
    return text if len(text) <= _MOST else f"{text[: _MOST - 1 - half]}…{text[-half:]}"
