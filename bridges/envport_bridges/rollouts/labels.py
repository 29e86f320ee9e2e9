"""The labels that tell which episodes belong together."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Mapping

from envport.types import Choice, Task

__all__ = ["RolloutLabels"]

# Limit on counted groups. Beyond it, the count of the group that was unused for longest begins again.
_GROUPS = 10_000


class RolloutLabels:
    """Makes the labels of the episodes of one target.

    - `run`: this process, or what the user says
    - `group`: the split, task and seed; the episodes of one prompt have the same
    - `sample`: how many episodes of the group were opened before

    Args:
        given: The user's own labels, which override these.
    """

    def __init__(self, given: Mapping[str, str]):
        self._given = {"run": secrets.token_hex(4), **given}
        self._opened: OrderedDict[str, int] = OrderedDict()

    def of(self, choice: Choice) -> dict[str, str]:
        """The labels of the next episode of a choice."""
        group = _group(choice)
        sample = self._opened.pop(group, 0)
        self._opened[group] = sample + 1
        if len(self._opened) > _GROUPS:
            self._opened.popitem(last=False)
        return {"group": group, "sample": str(sample), **self._given}


def _group(choice: Choice) -> str:
    task = choice.task
    if isinstance(task, Task | Mapping):
        task = hashlib.sha256(repr(task).encode("utf-8", "replace")).hexdigest()[:12]
    parts = (("split", choice.split), ("task", task), ("seed", choice.seed))
    # A split's name may be longer than a label.
    return " ".join(f"{name}={str(value)[:40]}" for name, value in parts if value is not None) or "any"
