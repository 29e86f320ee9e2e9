"""Words for people and models: which values a JSON Schema allows, and what a value is. Always of readable length."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from envport.tools.dialects import with_exclusive_bounds

__all__ = ["cut", "describe_allowed", "listed", "show"]

_LONGEST_VALUE = 80
_LONGEST_LIST = 1_000
_LONGEST_DESCRIPTION = 2_000


def show(value: Any) -> str:
    """A value as JSON, shortened to a readable length."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__} too large or too deep to show"
    # Only a lone surrogate stays escaped: no text that is sent may hold one.
    return cut(text).encode("utf-8", "backslashreplace").decode("utf-8")


def cut(text: str, longest: int = _LONGEST_VALUE) -> str:
    """A text, shortened to a readable length."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def listed(words: Iterable[str], between: str = ", ") -> str:
    """Words in a list of readable length, which says how many it leaves out."""
    shown: list[str] = []
    length, left_out = 0, 0
    for word in words:
        length += len(word) + len(between)
        if shown and length > _LONGEST_LIST:
            left_out += 1
        else:
            shown.append(word)
    return between.join(shown) + (f" and {left_out:,} more" if left_out else "")


def describe_allowed(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """Describe in words which values a JSON Schema allows.

    Args:
        schema: The schema to describe.
        root: The schema that its references point into.
    """
    return cut(_allowed(schema, root, 4), _LONGEST_DESCRIPTION)


def _allowed(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    """Describe as many levels of nesting as `depth` says: a schema may contain itself."""
    if depth == 0 or not isinstance(schema, Mapping):
        return "valid"
    schema = cast("Mapping[str, Any]", schema)
    if "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", 1)[-1]
        # Dialects before 2019-09 call them `definitions`.
        kept = cast("Mapping[str, Mapping[str, Any]]", root.get("$defs") or root.get("definitions") or {})
        target = kept.get(name)
        return _describe(target, root, depth) if target is not None else "valid"
    return _describe(schema, root, depth)


def _describe(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    if "const" in schema:
        return f"exactly {show(schema['const'])}"
    if "enum" in schema:
        return f"one of {listed(show(value) for value in schema['enum'])}"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return listed((_allowed(choice, root, depth - 1) for choice in schema[key]), " or ")
    bounds = _bounds(schema, root, depth - 1)
    kind = schema.get("type", "value" if bounds else "JSON value")
    words = " or ".join(map(str, cast("list[Any]", kind))) if isinstance(kind, list) else str(kind)
    article = "an" if words[0] in "aeiou" else "a"
    return " ".join([f"{article} {words}" if words[0] != "n" or words == "number" else words, *bounds])


_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters long",
    "maxLength": "at most {} characters long",
    "pattern": "matching {}",
    "format": "in the format {}",
    "minItems": "with at least {} items",
    "maxItems": "with at most {} items",
}

DESCRIBED = {"type", "const", "enum", "anyOf", "oneOf", *_BOUNDS}
"""The keywords of JSON Schema that `describe_allowed` puts into words, where a value itself breaks them."""


def _bounds(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> list[str]:
    schema = with_exclusive_bounds(schema)
    words = [said.format(schema[key]) for key, said in _BOUNDS.items() if key in schema]
    if isinstance(values := schema.get("additionalProperties"), Mapping) and values:
        words.append(f"whose values are each {_allowed(values, root, depth)}")
    if parts := schema.get("prefixItems"):
        words.append(f"whose items are, in this order, {listed(_allowed(part, root, depth) for part in parts)}")
    if isinstance(items := schema.get("items"), Mapping):
        words.append(f"whose items are each {_allowed(items, root, depth)}")
    if isinstance(properties := schema.get("properties"), Mapping):
        words.append(f"with the keys {listed(cast('Mapping[str, Any]', properties))}")
    return [", ".join(words)] if words else []
