"""Random arguments for tools, drawn from their JSON Schema alone."""

from __future__ import annotations

import importlib
import math
import re
import string
from collections.abc import Mapping
from decimal import Decimal
from random import Random
from typing import Any, cast

from envport.tools.dialects import validator_of, with_exclusive_bounds

__all__ = ["ArgumentSampler"]

_ATTEMPTS = 100
_DEEP = 4
_LETTERS = string.ascii_lowercase
_FORMATS = {
    "date": "2024-{a:02}-{b:02}",
    "date-time": "2024-{a:02}-{b:02}T{c:02}:30:00Z",
    "time": "{c:02}:{d:02}:00Z",
    "duration": "P{b}DT{c}H",
    "email": "user{d}@example.org",
    "hostname": "host{d}.example.org",
    "ipv4": "192.0.2.{d}",
    "ipv6": "2001:db8::{d}",
    "uri": "https://example.org/{d}",
    "uuid": "00000000-0000-4000-8000-0000000000{d:02}",
}


class ArgumentSampler:
    """Draws arguments that a JSON Schema 2020-12 accepts. The same random state gives the same arguments.

    It supports the keywords that tools use: types, `enum`, `const`, unions, bounds, patterns, common formats,
    arrays, tuples, objects and references within the schema. Every draw is validated. If a hundred draws fail, it
    raises an error.

    Args:
        schema: The input schema of a tool.
    """

    def __init__(self, schema: Mapping[str, Any]):
        self._schema = dict(schema)
        self._validator = validator_of(self._schema)

    def sample(self, rng: Random) -> dict[str, Any]:
        """Draw arguments.

        Raises:
            ValueError: No arguments were found that the schema accepts.
        """
        for _ in range(_ATTEMPTS):
            drawn = _Draw(self._schema, rng).value(self._schema, 0)
            if isinstance(drawn, dict) and self._validator.is_valid(arguments := cast("dict[str, Any]", drawn)):
                return arguments
        raise ValueError(f"no arguments were found that this schema accepts: {self._schema}")

    def accepts(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the schema accepts the arguments."""
        return bool(self._validator.is_valid(dict(arguments)))


class _Draw:
    """One draw from a schema. `depth` counts the nesting, so that drawing from a recursive schema ends."""

    def __init__(self, root: Mapping[str, Any], rng: Random):
        self._root = root
        self._rng = rng

    def value(self, schema: Any, depth: int) -> Any:
        if not isinstance(schema, dict):
            return self._anything()
        schema = self._merged(cast("dict[str, Any]", schema))
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        for key in ("anyOf", "oneOf"):
            if key in schema:
                rest = {name: value for name, value in schema.items() if name != key}
                return self.value({**rest, **self._merged(self._choice(schema[key], depth))}, depth)
        return self._typed(schema, depth)

    def _merged(self, schema: dict[str, Any]) -> dict[str, Any]:
        followed: set[str] = set()
        while "$ref" in schema or "allOf" in schema:
            schema = dict(schema)
            parts = [*schema.pop("allOf", ())]
            if reference := schema.pop("$ref", None):
                if reference in followed:
                    raise ValueError(f"the reference {reference!r} leads back to itself")
                followed.add(reference)
                parts.append(self._resolve(reference))
            for part in parts:
                schema = {**part, **schema}
        return schema

    def _resolve(self, reference: str) -> dict[str, Any]:
        node: Any = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            node = cast("Any", node[int(key)] if isinstance(node, list) else node[key])
        return cast("dict[str, Any]", node)

    def _choice(self, choices: list[dict[str, Any]], depth: int) -> dict[str, Any]:
        if depth >= _DEEP:
            leaves = [choice for choice in choices if "$ref" not in choice and choice.get("type") != "array"]
            choices = leaves or choices
        return self._rng.choice(choices)

    def _typed(self, schema: dict[str, Any], depth: int) -> Any:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = self._rng.choice(cast("list[str]", kind))
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "prefixItems" in schema else None
        match kind:
            case "string":
                return self._string(schema)
            case "integer":
                return self._integer(schema)
            case "number":
                return self._number(schema)
            case "boolean":
                return self._rng.random() < 0.5
            case "null":
                return None
            case "array":
                return self._array(schema, depth)
            case "object":
                return self._object(schema, depth)
            case _:
                return self._anything()

    def _anything(self) -> Any:
        return self._rng.choice([None, True, 0, -7, 0.5, "", "word", [], [1, "two"], {}, {"key": "value"}])

    def _string(self, schema: dict[str, Any]) -> str:
        if "pattern" in schema:
            try:
                return matching(schema["pattern"], self._rng)
            except re.error as error:
                raise ValueError(f"no text can be drawn for the pattern {schema['pattern']!r}: {error}") from None
        if template := _FORMATS.get(schema.get("format", "")):
            rng = self._rng
            return template.format(
                a=rng.randint(1, 12), b=rng.randint(1, 28), c=rng.randint(0, 23), d=rng.randint(0, 59)
            )
        low = schema.get("minLength", 0)
        high = schema.get("maxLength", max(low, 8))
        return "".join(self._rng.choices(_LETTERS + " 0é", k=self._rng.randint(low, min(high, low + 8))))

    def _bounds(self, schema: Mapping[str, Any], reach: float) -> tuple[float, float]:
        schema = with_exclusive_bounds(schema)
        lows = [schema[key] for key in ("minimum", "exclusiveMinimum") if key in schema]
        highs = [schema[key] for key in ("maximum", "exclusiveMaximum") if key in schema]
        low = max(lows) if lows else (min(highs) if highs else 0) - reach
        high = min(highs) if highs else max(low, 0) + reach
        return low, high

    def _integer(self, schema: dict[str, Any]) -> int:
        low, high = self._bounds(schema, 100)
        step = schema.get("multipleOf", 1)
        first, last = math.ceil(low / step), math.floor(high / step)
        drawn = self._rng.choice([first, last, self._rng.randint(min(first, last), max(first, last))])
        return int(drawn * step)

    def _number(self, schema: dict[str, Any]) -> float:
        low, high = self._bounds(schema, 1000.0)
        if step := schema.get("multipleOf"):
            times = self._rng.randint(math.ceil(low / step), math.floor(high / step))
            # In floats, 3 x 0.1 is not 0.3.
            return float(times * Decimal(repr(step)))
        return self._rng.choice([low, high, self._rng.uniform(low, high)])

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        made = [self.value(item, depth + 1) for item in schema.get("prefixItems", ())]
        low = schema.get("minItems", 0)
        reach = 0 if depth >= _DEEP else 3
        high = min(schema.get("maxItems", low + reach), max(low, len(made)) + reach)
        items = schema.get("items", True)
        if items is not False:
            for _ in range(self._rng.randint(low, max(low, high)) - len(made)):
                item = self.value(items, depth + 1)
                if not (schema.get("uniqueItems") and item in made):
                    made.append(item)
        return made

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        made: dict[str, Any] = {}
        for name, part in schema.get("properties", {}).items():
            if name in required or (depth < _DEEP and self._rng.random() < 0.5):
                made[name] = self.value(part, depth + 1)
        additional = schema.get("additionalProperties", False)
        if isinstance(additional, dict) or (additional and "properties" not in schema):
            names = schema.get("propertyNames", {"type": "string", "minLength": 1})
            for _ in range(schema.get("minProperties", 0) + self._rng.randint(0, 0 if depth >= _DEEP else 2)):
                made[str(self.value(names, depth + 1))] = self.value(additional, depth + 1)
        return made


def matching(pattern: str, rng: Random) -> str:
    """Draw a text that a regular expression matches. Look-around and back references are not supported."""
    # The standard library's parser has no public name.
    parsed = importlib.import_module("re._parser").parse(pattern)
    return "".join(_from_tokens(parsed, rng))


def _from_tokens(tokens: Any, rng: Random) -> list[str]:
    return [_from_token(str(operation), argument, rng) for operation, argument in tokens]


def _from_token(operation: str, argument: Any, rng: Random) -> str:
    match operation:
        case "LITERAL":
            return chr(argument)
        case "NOT_LITERAL":
            return rng.choice([letter for letter in _LETTERS if ord(letter) != argument])
        case "ANY":
            return rng.choice(_LETTERS)
        case "IN":
            return rng.choice(_members(argument))
        case "BRANCH":
            return "".join(_from_tokens(rng.choice(argument[1]), rng))
        case "SUBPATTERN":
            return "".join(_from_tokens(argument[-1], rng))
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            low, high, repeated = argument
            times = rng.randint(low, min(int(high), low + 4))
            return "".join("".join(_from_tokens(repeated, rng)) for _ in range(times))
        case "AT":
            return ""
        case _:
            raise ValueError(f"no text can be drawn for the regular expression's {operation.lower()}")


def _members(tokens: Any) -> list[str]:
    """The printable ASCII characters that a character class allows, and the characters that it names."""
    source = "".join(_class_source(str(operation), argument) for operation, argument in tokens)
    allowed = re.compile(f"[{source}]")
    named = [chr(argument) for operation, argument in tokens if str(operation) == "LITERAL"]
    named += [chr(code) for operation, argument in tokens if str(operation) == "RANGE" for code in argument]
    found = [letter for letter in [*string.printable[:95], *named] if allowed.fullmatch(letter)]
    if not found:
        raise ValueError("no printable character is in the regular expression's character class")
    return found


_CATEGORIES = {
    "DIGIT": r"\d",
    "NOT_DIGIT": r"\D",
    "WORD": r"\w",
    "NOT_WORD": r"\W",
    "SPACE": r"\s",
    "NOT_SPACE": r"\S",
}


def _class_source(operation: str, argument: Any) -> str:
    match operation:
        case "NEGATE":
            return "^"
        case "RANGE":
            return f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}"
        case "CATEGORY":
            return _CATEGORIES[str(argument).removeprefix("CATEGORY_")]
        case _:
            return re.escape(chr(argument))
