"""Safe Python names for tools and parameters that may be called anything, and the way back."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

__all__ = ["SafeNames"]

_NOT_IN_NAMES = re.compile(r"[^0-9A-Za-z_]")


@dataclass(frozen=True)
class SafeNames:
    """A reversible mapping of names to Python identifiers.

    Attributes:
        safe: The identifier by original name, in the order of the originals.
        original: The original name by identifier.
    """

    safe: dict[str, str] = field(default_factory=dict[str, str])
    original: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, names: Iterable[str], *, prefix: str, reserved: Collection[str] = ()) -> SafeNames:
        """Map names: those that are safe keep their own, the others get one that nobody has.

        Args:
            names: The original names, each once.
            prefix: What a name gets in front that cannot be an identifier otherwise.
            reserved: Identifiers that nothing may be called.
        """
        names = list(names)
        kept = {name: name for name in names if _is_safe(name, reserved)}
        taken = {*kept.values(), *reserved}
        mapping: dict[str, str] = {}
        for name in names:
            identifier = kept.get(name) or _unused(_identifier(name, prefix, reserved), taken)
            taken.add(identifier)
            mapping[name] = identifier
        return cls(mapping, {identifier: name for name, identifier in mapping.items()})


def _is_safe(name: str, reserved: Collection[str]) -> bool:
    return (
        name.isascii()
        and name.isidentifier()
        and not name.startswith("_")
        and not keyword.iskeyword(name)
        and name not in reserved
    )


def _identifier(name: str, prefix: str, reserved: Collection[str]) -> str:
    bare = _NOT_IN_NAMES.sub("_", name).strip("_")
    return bare if _is_safe(bare, reserved) else f"{prefix}{bare}".rstrip("_")


def _unused(identifier: str, taken: Collection[str]) -> str:
    if identifier not in taken:
        return identifier
    number = 2
    while f"{identifier}_{number}" in taken:
        number += 1
    return f"{identifier}_{number}"
