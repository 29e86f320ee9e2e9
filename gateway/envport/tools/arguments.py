"""Messages for invalid tool arguments: each names the argument, the problem, and what is allowed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import jsonschema
from pydantic import ValidationError
from pydantic_core import ErrorDetails

__all__ = ["describe_allowed", "describe_problems", "explain_json_schema_error"]

_LONGEST_VALUE = 80
_MOST_LINES = 20
_TELLING = {"value_error", "assertion_error", "string_unicode"}


def describe_problems(error: ValidationError, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """One line for each argument that pydantic refused.

    Args:
        error: The error from pydantic. Its locations are names of the schema's properties.
        arguments: The arguments that were checked.
        schema: The tool's input schema, which says what is allowed.
    """
    worst: dict[str, tuple[ErrorDetails, list[str]]] = {}
    for detail in error.errors(include_url=False, include_context=False):
        name = str(detail["loc"][0]) if detail["loc"] else ""
        path = _path(detail, arguments.get(name))
        # For a union, report the branch that got furthest into the value: the caller most likely meant that one.
        if name not in worst or len(path) > len(worst[name][1]):
            worst[name] = detail, path
    lines = [_line(name, detail, path, schema) for name, (detail, path) in worst.items()]
    more = len(lines) - _MOST_LINES
    return "\n".join([*lines[:_MOST_LINES], *([f"... and {more} more."] if more > 0 else [])])


def _line(name: str, detail: ErrorDetails, path: list[str], schema: Mapping[str, Any]) -> str:
    properties = cast("Mapping[str, Any]", schema["properties"])
    if not name:
        return f"The arguments are not valid JSON text: {detail['msg']}"
    if name not in properties:
        known = ", ".join(properties) or "none"
        return f"Argument {cut(repr(name))} is unknown; this tool's arguments are: {known}."
    allowed = describe_allowed(properties[name], schema)
    if detail["type"] == "missing" and len(detail["loc"]) == 1:
        return f"Argument {name!r} is missing; it has to be {allowed}."
    where = f" at {cut('.'.join(path))}" if path else ""
    if detail["type"] == "missing":
        return f"Argument {name!r}{where} is missing; {name!r} has to be {allowed}."
    # Add pydantic's message only if it says more than what is allowed: for a problem inside a value, and for the
    # author's own check.
    why = f" ({detail['msg']})" if where or detail["type"] in _TELLING else ""
    return f"Argument {name!r}{where} is {show(detail['input'])}{why}; it has to be {allowed}."


def _path(detail: ErrorDetails, value: Any) -> list[str]:
    """The location of the problem in a value, without the type names that pydantic puts into its locations."""
    path: list[str] = []
    location = detail["loc"][1:]
    for number, part in enumerate(location, 1):
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            if detail["type"] == "missing" and number == len(location):
                path.append(str(part))
        else:
            path.append(str(part))
    return path


def explain_json_schema_error(error: jsonschema.ValidationError, root: Mapping[str, Any] | None = None) -> str:
    """One line for an error of a JSON Schema validator.

    Args:
        error: The error from the validator.
        root: The schema that references point into; the schema of the error if not given.
    """
    schema = cast("Mapping[str, Any]", error.schema)
    path = ".".join(str(part) for part in error.absolute_path)
    if error.validator == "required":
        return f"{error.message[:500]}{f' of {path!r}' if path else ''}."
    if error.validator == "additionalProperties" and not path:
        known = ", ".join(cast("Mapping[str, Any]", schema.get("properties", {}))) or "none"
        return f"{error.message[:500]}; this tool's arguments are: {known}."
    subject = f"Argument {path!r}" if path else "The arguments"
    return f"{subject}: {error.message[:500]}. Allowed: {describe_allowed(schema, root or schema)}."


def show(value: Any) -> str:
    """A value as JSON, shortened to a readable length."""
    try:
        text = json.dumps(value, default=str)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__} too large or too deep to show"
    return cut(text)


def cut(text: str) -> str:
    """A text, shortened to a readable length."""
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def describe_allowed(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 4) -> str:
    """Describe in words which values a JSON Schema allows.

    Args:
        schema: The schema to describe.
        root: The schema that its references point into.
        depth: How many levels of nesting to describe. It is limited because a schema may contain itself.
    """
    if depth == 0:
        return "valid"
    if "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", 1)[-1]
        target = cast("Mapping[str, Mapping[str, Any]]", root.get("$defs", {})).get(name)
        return _describe(target, root, depth) if target is not None else "valid"
    return _describe(schema, root, depth)


def _describe(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    if "const" in schema:
        return f"exactly {show(schema['const'])}"
    if "enum" in schema:
        return f"one of {', '.join(show(value) for value in schema['enum'])}"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(describe_allowed(choice, root, depth - 1) for choice in schema[key])
    kind = schema.get("type", "any JSON value")
    words = " or ".join(map(str, cast("list[Any]", kind))) if isinstance(kind, list) else str(kind)
    article = "an" if words[0] in "aeiou" else "a"
    return " ".join(
        [f"{article} {words}" if words[0] != "n" or words == "number" else words, *_bounds(schema, root, depth - 1)]
    )


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


def _bounds(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> list[str]:
    words = [said.format(schema[key]) for key, said in _BOUNDS.items() if key in schema]
    if isinstance(values := schema.get("additionalProperties"), Mapping) and values:
        words.append(f"whose values are each {describe_allowed(cast('Mapping[str, Any]', values), root, depth)}")
    if parts := schema.get("prefixItems"):
        words.append(
            f"whose items are, in this order, {', '.join(describe_allowed(part, root, depth) for part in parts)}"
        )
    if isinstance(items := schema.get("items"), Mapping):
        words.append(f"whose items are each {describe_allowed(cast('Mapping[str, Any]', items), root, depth)}")
    if isinstance(properties := schema.get("properties"), Mapping):
        words.append(f"with the keys {', '.join(cast('Mapping[str, Any]', properties))}")
    return [", ".join(words)] if words else []
