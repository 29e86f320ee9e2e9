"""JSON Schema validators that keep to the specification where `jsonschema` keeps to Python.

`jsonschema` matches patterns with Python's `re`, for which `$` also matches before a last line break and `\\d` is any
digit of Unicode. The specification asks for ECMA-262 (JSON Schema 2020-12 core, section 6.4). `jsonschema` also
divides floats, so it does not accept 0.3 as a multiple of 0.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, cast

from jsonschema import FormatChecker, ValidationError, validators
from jsonschema.protocols import Validator
from referencing.jsonschema import EMPTY_REGISTRY, SchemaRegistry
from regress import Regex, RegressError

__all__ = ["check_schema", "validator_of", "with_exclusive_bounds"]

_extend: Any = validators.extend  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_WITH_PATTERNS = FormatChecker(formats=())
_WITHOUT_PATTERNS = FormatChecker(formats=())


def validator_of(
    schema: Mapping[str, Any], *, registry: SchemaRegistry = EMPTY_REGISTRY, patterns: bool = True
) -> Validator:
    """A validator for the dialect that a schema names in `$schema`; 2020-12 if it names none.

    Args:
        schema: The schema. It is not checked itself; see `check_schema`.
        registry: Where references are looked up. By default nowhere but in the schema; they are never fetched.
        patterns: Whether patterns are applied.
    """
    return cast("Validator", _dialect(_stock(schema), patterns)(schema, registry=registry))


def check_schema(schema: Mapping[str, Any], *, patterns: bool = True) -> None:
    """Check that a schema is valid in its dialect.

    Args:
        schema: The schema.
        patterns: Whether each pattern has to be a regular expression.

    Raises:
        jsonschema.SchemaError: It is not.
        RecursionError: It is nested too deeply to be checked.
    """
    _stock(schema).check_schema(schema, format_checker=_WITH_PATTERNS if patterns else _WITHOUT_PATTERNS)


def _pattern_matches(pattern: str, text: str) -> bool:
    # Half of a surrogate pair is no character, and no pattern can ask for it.
    return _matcher(pattern)(text.encode("utf-8", "replace").decode())


def with_exclusive_bounds(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same schema with numbers for exclusive bounds. In draft 4 they say whether the other bound is exclusive.

    Args:
        schema: A schema of any dialect.
    """
    changed = dict(schema)
    for key, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(exclusive := schema.get(key), bool):
            del changed[key]
            if exclusive and bound in changed:
                changed[key] = changed.pop(bound)
    return changed


@lru_cache(maxsize=4096)
def _matcher(pattern: str) -> Callable[[str], Any]:
    # The specification has patterns read in Unicode mode. Many escape what needs no escape (`\-`), which is an error
    # in that mode only.
    for flags in ("u", None):
        try:
            return Regex(pattern, flags).find
        except (RegressError, UnicodeEncodeError):
            continue
    # What is no regular expression of ECMA-262, such as `(?i)a`, may be one of Python's.
    return re.compile(pattern).search


def _stock(schema: Mapping[str, Any]) -> type[Any]:
    return cast("type[Any]", validators.validator_for(schema, default=validators.Draft202012Validator))


@cache
def _dialect(stock: type[Any], patterns: bool) -> Any:
    keywords = _KEYWORDS if patterns else _KEYWORDS | dict.fromkeys(_MATCHING, _no_errors)
    return _extend(stock, {name: check for name, check in keywords.items() if name in stock.VALIDATORS})


def _no_errors(*_: Any) -> None:
    """Check nothing."""


def _multiple_of(validator: Any, divisor: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "number") and _exact(instance) % _exact(divisor):
        yield ValidationError(f"{instance!r} is not a multiple of {divisor}")


def _exact(number: float) -> Fraction:
    # The shortest text of a float is the number that was written.
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _pattern_matches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, properties: Mapping[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, part in properties.items():
            for name, value in instance.items():
                if _pattern_matches(pattern, name):
                    yield from validator.descend(value, part, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    patterns = schema.get("patternProperties", {})
    named = schema.get("properties", {})
    extras = [name for name in instance if name not in named and not _any_matches(patterns, name)]
    if validator.is_type(allowed, "object"):
        for name in extras:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and extras:
        names, expressions = (", ".join(map(repr, texts)) for texts in (extras, patterns))
        why = f"; keys have to match {expressions}" if patterns else ""
        yield ValidationError(f"the key{'s' if len(extras) > 1 else ''} {names} cannot be given{why}")


def _any_matches(patterns: Mapping[str, Any], name: str) -> bool:
    return any(_pattern_matches(pattern, name) for pattern in patterns)


_MATCHING = ("pattern", "patternProperties")
_KEYWORDS: dict[str, Any] = {
    "additionalProperties": _additional_properties,
    "multipleOf": _multiple_of,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
}


def _is_pattern(instance: object) -> bool:
    if isinstance(instance, str):
        _matcher(instance)
    return True


_WITH_PATTERNS.checks("regex", raises=re.error)(_is_pattern)
