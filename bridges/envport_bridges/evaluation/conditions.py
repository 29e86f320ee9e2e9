"""The conditions of a measurement: what has to be the same before two results can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from envport.errors import InvalidOption
from envport_bridges.evaluation.results import PlayedEpisode, Result

__all__ = ["Conflict", "conflicts", "unknown"]

_SAMPLES = {"seed": "seeds", "fingerprint": "tools", "texts": "texts"}
"""The attributes that all episodes of a sample have in common, and what they are called."""

_NOT_COMPARED = frozenset({"envport", "limits"})

Conflict = tuple[Any, Any]
"""A condition's value in the first result, and in the second."""


def conflicts(a: Result, b: Result, allowed: Iterable[str] = ()) -> dict[str, Conflict]:
    """The conditions in which two results differ, among those that both players have and both logs hold.

    Args:
        a: The first result.
        b: The second result.
        allowed: Conditions that may differ.

    Returns:
        The allowed conflicts.

    Raises:
        InvalidOption: They differ in others (the message says in which, and how to compare all the same), or an allowed
            one is no condition.
    """
    first, second = _conditions(a), _conditions(b)
    allowed = _known(allowed, {"source", *first, *second, *_SAMPLES})
    found = {name: (first[name], second[name]) for name in first if name in second and first[name] != second[name]}
    refused = {name: pair for name, pair in found.items() if name not in allowed}
    if refused:
        what = "; ".join(f"{name} is {_short(one)} in A and {_short(two)} in B" for name, (one, two) in refused.items())
        hint = " (the players were shown different tools)" if "fingerprint" in refused else ""
        raise InvalidOption(f"these results cannot be compared: {what}{hint}{_remedy(refused)}")
    for name, plural in _SAMPLES.items():
        sample = next((one for one in a.by_sample if one in b.by_sample and _differs(a, b, one, name)), None)
        if sample is not None and name not in allowed:
            what = f"sample {sample!r} was played with different {plural}"
            raise InvalidOption(f"these results cannot be compared: {what}{_remedy([name])}")
        if sample is not None and name not in found:
            found[name] = (getattr(a.by_sample[sample][0], name), getattr(b.by_sample[sample][0], name))
    return found


def unknown(a: Result, b: Result) -> tuple[str, ...]:
    """The conditions that one of the logs does not hold, so that nobody can tell whether they are the same."""
    agents = all("agent_seconds" in one.settings for one in (a, b))
    lacking = {
        "source": any(one.identity.source is None for one in (a, b)),
        "limits": any(one.identity.limits is None for one in (a, b)),
        "agent_model": agents and len({"agent_model" in one.settings for one in (a, b)}) > 1,
        "texts": any(episode.texts is None for one in (a, b) for episode in one.played),
    }
    return tuple(name for name, lacks in lacking.items() if lacks)


def _conditions(result: Result) -> dict[str, Any]:
    identity = asdict(result.identity)
    if result.identity.source is None:
        del identity["source"]
    named = {name: value for name, value in identity.items() if name not in _NOT_COMPARED}
    return named | (result.identity.limits or {}) | dict(result.settings)


def _known(allowed: Iterable[str], conditions: Iterable[str]) -> frozenset[str]:
    given = frozenset(allowed)
    if unheard := sorted(given - set(conditions)):
        raise InvalidOption(
            f"{unheard[0]!r} is no condition of these results; allowed: {', '.join(sorted(conditions))}"
        )
    return given


def _differs(a: Result, b: Result, sample: str, name: str) -> bool:
    episodes: Sequence[PlayedEpisode] = (*a.by_sample[sample], *b.by_sample[sample])
    return len({getattr(one, name) for one in episodes} - {None}) > 1


def _remedy(names: Iterable[str]) -> str:
    return f"; to compare them all the same: {' '.join(f'--despite {name}' for name in names)}"


def _short(value: Any) -> str:
    text = repr(value)
    return f"{text[:13]}…'" if isinstance(value, str) and len(value) == 64 else text
