"""References within a JSON Schema: those that lead nowhere, and those that lead back to themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY, UnknownDialect

__all__ = ["dangling_reference", "endless_reference", "refers"]

_LISTS = ("allOf", "anyOf", "oneOf")
_PARTS = ("else", "if", "not", "then")
"""Keywords whose schemas apply to the same value as the schema that they are in."""


def dangling_reference(schema: Mapping[str, Any]) -> str | None:
    """A `$ref` that points outside the schema, or to nothing. References are never fetched.

    Args:
        schema: The schema.
    """
    if not (references := _references(schema)):
        return None
    resolver = _resolver(schema)
    for node in references:
        try:
            resolver.lookup(node["$ref"])
        except Unresolvable:
            return node["$ref"]
    return None


def endless_reference(schema: Mapping[str, Any]) -> str | None:
    """A `$ref` that leads back to itself for one and the same value, so that no value can ever be checked.

    A schema that refers to itself for a part of the value, as a tree does, is not endless.

    Args:
        schema: The schema. Its references have to lead somewhere.
    """
    if not (references := _references(schema)):
        return None
    resolver = _resolver(schema)
    harmless: set[int] = set()
    for start in references:
        if id(start) in harmless:
            continue
        above: set[int] = set()
        # Depth first, with each schema closed once all that applies with it has been seen.
        left: list[tuple[Mapping[str, Any], bool]] = [(start, False)]
        while left:
            node, seen = left.pop()
            if seen:
                above.discard(id(node))
                harmless.add(id(node))
            elif id(node) in above:
                return start["$ref"]
            elif id(node) not in harmless:
                above.add(id(node))
                left += [(node, True), *((part, False) for part in _applied_with(node, resolver))]
    return None


def refers(schema: Mapping[str, Any]) -> bool:
    """Whether a schema has references.

    Args:
        schema: The schema.
    """
    return bool(_references(schema))


def _resolver(schema: Mapping[str, Any]) -> Any:
    try:
        resource = Resource[Any].from_contents(schema, default_specification=DRAFT202012)
    except UnknownDialect:
        resource = DRAFT202012.create_resource(schema)
    base = resource.id() or ""
    return EMPTY_REGISTRY.with_resource(base, resource).crawl().resolver(base)


def _references(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The objects within a schema that have a reference."""
    return [node for node in _nodes(schema) if isinstance(node.get("$ref"), str)]


def _nodes(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All objects within a schema, in the order in which they are written."""
    left: list[Any] = [schema]
    while left:
        node = left.pop()
        if isinstance(node, Mapping):
            yield cast("Mapping[str, Any]", node)
            left += reversed(list(cast("Mapping[str, Any]", node).values()))
        elif isinstance(node, list):
            left += reversed(cast("list[Any]", node))


def _applied_with(node: Mapping[str, Any], resolver: Any) -> Iterator[Mapping[str, Any]]:
    """The schemas that apply to the same value as a schema."""
    parts: list[Any] = [node.get(keyword) for keyword in _PARTS]
    for keyword in _LISTS:
        if isinstance(listed := node.get(keyword), list):
            parts += cast("list[Any]", listed)
    if isinstance(reference := node.get("$ref"), str):
        with suppress(Unresolvable):
            parts.append(resolver.lookup(reference).contents)
    return (cast("Mapping[str, Any]", part) for part in parts if isinstance(part, Mapping))
