"""Type hints of JSON Schemas, as source text. A schema is a stranger's: nothing of it becomes code but literals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from envport_bridges.safe_names import SafeNames

__all__ = ["TypeHints", "quoted"]

_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_DEFINITIONS = "#/$defs/"


class TypeHints:
    """Makes type hints, and the classes that they need.

    Args:
        definitions: The `$defs` of the tool's schema.
        prefix: What the names of its classes begin with.
        classes: Source of the classes of all tools, by name. Those of this tool are added.
    """

    def __init__(self, definitions: Mapping[str, Any], prefix: str, classes: dict[str, str]):
        self._definitions = definitions
        self._prefix = prefix
        self._classes = classes
        self._named: dict[str, str] = {}
        self._inside: list[str] = []

    def hint(self, schema: Any, name: str) -> str:
        """The hint of a schema; `Any` for what Python's types cannot say.

        Args:
            schema: The schema.
            name: What a class for it is called, if it needs one.
        """
        if not isinstance(schema, Mapping):
            return "Any"
        schema = cast("Mapping[str, Any]", schema)
        if "$ref" in schema:
            return self._referenced(str(schema["$ref"]))
        if "enum" in schema or "const" in schema:
            return _literal(cast("Sequence[Any]", schema.get("enum", [schema.get("const")])))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                choices = cast("Sequence[Any]", schema[keyword])
                return _union([self.hint(choice, f"{name}{index + 1}") for index, choice in enumerate(choices)])
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return _union([self._of_type(str(kind), schema, name) for kind in cast("list[Any]", kinds)])
        return self._of_type(str(kinds), schema, name)

    def _referenced(self, reference: str) -> str:
        name = reference.removeprefix(_DEFINITIONS)
        if name in self._named:
            return self._named[name]
        # One that holds itself without a class between cannot be written as a type.
        if name == reference or name not in self._definitions or name in self._inside:
            return "Any"
        self._inside.append(name)
        try:
            return self.hint(self._definitions[name], name)
        finally:
            self._inside.pop()

    def _of_type(self, kind: str, schema: Mapping[str, Any], name: str) -> str:
        if kind == "array":
            return f"list[{self.hint(schema.get('items'), f'{name}Item')}]"
        if kind != "object":
            return _SCALARS.get(kind, "Any")
        properties = cast("Mapping[str, Any]", schema.get("properties") or {})
        if properties and "" not in properties:  # the type checker takes no key without a name
            return self._class(schema, properties, name)
        return f"dict[str, {self.hint(schema.get('additionalProperties'), f'{name}Value')}]"

    def _class(self, schema: Mapping[str, Any], properties: Mapping[str, Any], name: str) -> str:
        """The name of a class for an object. Every property is a key, whatever it is called."""
        taken = {"Any", "Literal", "NotRequired", "TypedDict", *self._classes}
        identifier = SafeNames.of([name], prefix=f"{self._prefix}_", reserved=taken).safe[name]
        if self._inside and self._inside[-1] == name:
            self._named[name] = identifier
        # Kept before its source is known, because it may hold itself.
        self._classes[identifier] = ""
        required = set(cast("Sequence[str]", schema.get("required", ())))
        keys: list[str] = []
        for key, value in properties.items():
            hint = self.hint(value, f"{identifier}{key.capitalize()}")
            keys.append(f"    {quoted(key)}: {quoted(hint if key in required else f'NotRequired[{hint}]')},")
        # Not as a class: keys may be no identifiers, such as `from`.
        self._classes[identifier] = "\n".join([f"{identifier} = TypedDict({quoted(identifier)}, {{", *keys, "})"])
        return identifier


def quoted(text: str) -> str:
    """A text as Python writes it, in double quotes where they are not in it."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if '"' not in literal else literal


def _value(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else repr(value)


def _literal(values: Sequence[Any]) -> str:
    if not values or not all(value is None or isinstance(value, str | int | bool) for value in values):
        return "Any"
    return f"Literal[{', '.join(map(_value, values))}]"


def _union(hints: Sequence[str]) -> str:
    if not hints or "Any" in hints:
        return "Any"
    return " | ".join(dict.fromkeys(hints))
