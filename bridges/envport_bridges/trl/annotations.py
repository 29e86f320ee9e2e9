"""The second-best description of a tool: type hints and a Google docstring, for readers that take no schema.

`transformers.utils.get_json_schema` makes a schema of these. It cannot say bounds, patterns, nested properties and
more; what is lost is told by name, so that a warning can repeat it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Union, cast

from envport_bridges.safe_names import SafeNames

__all__ = ["Annotated", "annotate"]

_SCALARS: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": type(None)}
_SAID = {"type", "enum", "const", "description", "items", "anyOf", "oneOf", "title", "additionalProperties"}
_SECTIONS = re.compile(r"\b(Args|Arguments|Returns|Return|Raises)\s*:", re.IGNORECASE)
_CHOICES = re.compile(r"\(\s*choices\s*:", re.IGNORECASE)


@dataclass(frozen=True)
class Annotated:
    """What a function has to carry so that transformers can describe it.

    Attributes:
        signature: The signature, `self` first, every parameter by keyword.
        annotations: The type hints: real objects, never text of the server's.
        docstring: A Google docstring with the description of each argument.
        lost: What the type hints cannot say, such as `row.minimum`.
    """

    signature: inspect.Signature
    annotations: dict[str, Any]
    docstring: str
    lost: tuple[str, ...]


@dataclass
class _Losses:
    path: str
    found: list[str] = field(default_factory=list[str])

    def add(self, keyword: str) -> None:
        self.found.append(f"{self.path}.{keyword}")


def annotate(description: str, schema: Mapping[str, Any], parameters: SafeNames) -> Annotated:
    """Describe a tool by signature, type hints and docstring.

    Args:
        description: The tool's description.
        schema: Its input schema.
        parameters: The parameters' safe names.
    """
    required = set(cast("Sequence[str]", schema.get("required", ())))
    properties = cast("Mapping[str, Any]", schema.get("properties", {}))
    self_parameter = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    listed: list[inspect.Parameter] = []
    annotations: dict[str, Any] = {}
    documented: list[str] = []
    lost = [keyword for keyword in schema if keyword not in ("type", "properties", "required", "description")]
    for name, identifier in parameters.safe.items():
        losses = _Losses(name)
        hint = _hint(properties[name], losses)
        default = inspect.Parameter.empty
        if name not in required:
            # Transformers reads "optional" from a default; the value is never used.
            default = None
            hint = Any if hint is Any else Union[hint, None]  # noqa: UP007
        annotations[identifier] = hint
        listed.append(inspect.Parameter(identifier, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint))
        said = properties[name].get("description", "") if isinstance(properties[name], Mapping) else ""
        documented.append(f"    {identifier}: {_harmless(str(said)) or name.strip() or identifier}")
        lost.extend(losses.found)
    text = _harmless(description) or "A tool."
    docstring = "\n".join([text, "", "Args:", *documented]) if documented else text
    return Annotated(inspect.Signature([self_parameter, *listed]), annotations, docstring, tuple(lost))


def _harmless(text: str) -> str:
    """One line that the docstring parser takes for nothing but text."""
    text = " ".join(text.split())
    return _CHOICES.sub("(choices -", _SECTIONS.sub(r"\1 -", text))


def _hint(schema: Any, losses: _Losses) -> Any:
    if not isinstance(schema, Mapping):
        losses.add("schema")
        return Any
    schema = cast("Mapping[str, Any]", schema)
    for keyword in schema:
        if keyword not in _SAID:
            losses.add(keyword)
    if "enum" in schema or "const" in schema:
        return _literal(schema, losses)
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return _union([_hint(choice, losses) for choice in schema[union]])
    kind = schema.get("type")
    if isinstance(kind, list):
        return _union([_of_type(str(one), schema, losses) for one in cast("list[Any]", kind)])
    return _of_type(str(kind), schema, losses)


def _literal(schema: Mapping[str, Any], losses: _Losses) -> Any:
    values = cast("list[Any]", schema.get("enum", [schema.get("const")]))
    if not values or not all(isinstance(value, str | int | bool) for value in values):
        losses.add("enum")
        return Any
    if "const" in schema:
        losses.add("const")
    return Literal[tuple(values)]


def _union(hints: list[Any]) -> Any:
    if not hints or Any in hints:
        return Any
    return Union[tuple(hints)]  # noqa: UP007


def _of_type(kind: str, schema: Mapping[str, Any], losses: _Losses) -> Any:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind == "array":
        items = schema.get("items")
        return list[_hint(items, losses)] if isinstance(items, Mapping) else list[Any]
    if kind == "object":
        if isinstance(schema.get("additionalProperties"), Mapping):
            return dict[str, _hint(schema["additionalProperties"], losses)]
        return dict[str, Any]
    return Any
