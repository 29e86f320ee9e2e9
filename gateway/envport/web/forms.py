"""Forms for the arguments of tools, from their JSON Schemas: which fields there are, and what was typed into them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from envport.errors import InvalidArguments
from envport.tools.allowed import describe_allowed
from envport.tools.arguments import schema_problems
from envport.tools.dialects import validator_of

__all__ = ["FieldKind", "FormField", "LeftEmpty", "fields_of", "problems_of", "read_field"]

FieldKind = Literal["string", "integer", "number", "boolean", "choice", "json"]
"""How a field is typed in."""

_KINDS: dict[str, FieldKind] = {"string": "string", "integer": "integer", "number": "number", "boolean": "boolean"}
_MOST_REFERENCES = 20


class LeftEmpty(Exception):
    """An optional field was left empty."""


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form.

    Attributes:
        name: Name of the argument.
        kind: How it is typed in.
        required: Whether it has to be given.
        allowed: What is allowed, in words.
        description: What the argument is.
        choices: The values of a choice.
        default: What the tool takes if it is not given, as JSON text; `None` if there is no default.
    """

    name: str
    kind: FieldKind
    required: bool
    allowed: str
    description: str = ""
    choices: tuple[Any, ...] = ()
    default: str | None = None

    @property
    def label(self) -> str:
        """What is written at the field."""
        return self.name if self.required else f"{self.name} (optional)"

    @property
    def hint(self) -> str:
        """What helps to fill it in."""
        said = [self.description or self.allowed]
        if self.kind == "json":
            said.append("As JSON.")
        if self.default is not None:
            said.append(f"{self.default} if left empty.")
        return " ".join(said)


def fields_of(schema: Mapping[str, Any]) -> list[FormField]:
    """The fields for the arguments of a tool.

    Args:
        schema: The tool's input schema.
    """
    properties: Mapping[str, Any] = schema.get("properties", {})
    required: list[str] = schema.get("required", [])
    return [_field(name, part, name in required, schema) for name, part in properties.items()]


def _field(name: str, given: Any, required: bool, root: Mapping[str, Any]) -> FormField:
    part = _resolved(given, root)
    said: Mapping[str, Any] = cast("Mapping[str, Any]", given) if isinstance(given, dict) else {}
    kind, choices = _kind(part, root)
    return FormField(
        name,
        kind,
        required,
        describe_allowed(part, root),
        str(said.get("description") or part.get("description") or ""),
        choices,
        json.dumps(said["default"], ensure_ascii=False) if said.get("default") is not None else None,
    )


def _kind(part: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[FieldKind, tuple[Any, ...]]:
    if isinstance(part.get("enum"), list):
        return "choice", tuple(part["enum"])
    if "const" in part:
        return "choice", (part["const"],)
    for word in ("anyOf", "oneOf"):
        options = [_resolved(option, root) for option in part.get(word, ())]
        options = [option for option in options if option.get("type") != "null"]
        if len(options) == 1:
            return _kind(options[0], root)
    kind = part.get("type")
    return (_KINDS.get(kind, "json") if isinstance(kind, str) else "json"), ()


def _resolved(part: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that a reference within the same document leads to."""
    for _ in range(_MOST_REFERENCES):
        if not isinstance(part, dict):
            return {}
        known = cast("Mapping[str, Any]", part)
        reference = known.get("$ref")
        if not isinstance(reference, str):
            return known
        part = root
        for word in reference.removeprefix("#").strip("/").split("/"):
            part = cast("Mapping[str, Any]", part).get(word, {}) if isinstance(part, dict) else {}
    return {}


def read_field(field: FormField, typed: Any) -> Any:
    """The value of a field.

    Args:
        field: The field.
        typed: What was typed: text, or the index of a choice.

    Raises:
        LeftEmpty: It is empty and may be.
        InvalidArguments: It cannot be read. The message says what is allowed.
    """
    empty = typed is None or typed == ""
    if empty and not field.required:
        raise LeftEmpty
    if field.kind == "string":
        return "" if empty else str(typed)
    if empty:
        raise InvalidArguments(f"It is missing; it has to be {field.allowed}.")
    if field.kind == "choice":
        return field.choices[int(str(typed))]
    if field.kind == "boolean":
        return typed == "true"
    return _read_text(field, str(typed).strip())


def _read_text(field: FormField, said: str) -> Any:
    refused = InvalidArguments(f"{said[:80]!r} is not allowed; it has to be {field.allowed}.")
    try:
        value = int(said) if field.kind == "integer" else json.loads(said)
    except json.JSONDecodeError as error:
        if field.kind != "json":
            raise refused from None
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidArguments(f"This is not JSON at {where}. It has to be {field.allowed}.") from None
    except ValueError:
        raise refused from None
    except RecursionError:
        raise InvalidArguments("This is nested too deeply.") from None
    if field.kind == "number" and type(value) not in (int, float):
        raise refused
    return value


def problems_of(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """What the schema refuses of arguments that were read, in words; `None` if it refuses nothing."""
    return schema_problems(validator_of(schema), arguments)
