"""The arguments of calls, as the protocol's clients send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

__all__ = ["without_unmeant_nulls"]


def without_unmeant_nulls(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments without nulls that stand for what was left out.

    TRL's binder sends null for every optional parameter that has no default.

    Args:
        arguments: The arguments.
        schema: The tool's input schema.
    """
    properties: Any = schema.get("properties", {})
    required: Any = schema.get("required", ())
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name in required or name not in properties or _takes_null(properties[name])
    }


def _takes_null(schema: Any) -> bool:
    """Whether a schema may allow null. References are not followed."""
    if not isinstance(schema, Mapping):
        return True
    said = cast("Mapping[str, Any]", schema)
    if "type" in said:
        kinds: Any = said["type"]
        return kinds == "null" or (isinstance(kinds, list) and "null" in kinds)
    if "enum" in said:
        return None in said["enum"]
    if "const" in said:
        return said["const"] is None
    return not (ways := said.get("anyOf") or said.get("oneOf")) or any(map(_takes_null, ways))
