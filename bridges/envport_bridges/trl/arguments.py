"""Checking a model's arguments against a tool's input schema, before anything is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, cast

from jsonschema import ValidationError
from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, validator_for
from jsonschema_specifications import REGISTRY  # pyright: ignore[reportMissingTypeStubs]
from referencing.exceptions import Unresolvable

from envport.arguments import explain_json_schema_error

__all__ = ["ArgumentSchema"]

_UNCHECKABLE = (Unresolvable, SchemaError, re.error, RecursionError)


class ArgumentSchema:
    """A tool's input schema, as a check.

    What the schema refuses is told in words for the model. A schema that cannot be applied here (a reference that
    leads nowhere, a pattern that is not Python's) refuses nothing: the gateway has the last word. References are never
    fetched.

    Args:
        schema: JSON Schema of the arguments, 2020-12 unless it names another dialect.
    """

    def __init__(self, schema: Mapping[str, Any]):
        self._schema = schema

    @cached_property
    def _validator(self) -> Validator | None:
        dialect: Any = validator_for(self._schema, default=Draft202012Validator)
        try:
            dialect.check_schema(self._schema)
        except _UNCHECKABLE:
            return None
        # Without a registry of its own, jsonschema opens the URLs that a schema refers to.
        return cast("Validator", dialect(self._schema, registry=REGISTRY))

    def problems(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments, one line each, or `None`.

        Args:
            arguments: What the model wrote, as parsed JSON.
        """
        lines = [_not_json(name, value) for name, value in arguments.items()]
        if any(lines):
            return "\n".join(filter(None, lines))
        if self._validator is None:
            return None
        try:
            errors = list(self._validator.iter_errors(dict(arguments)))
        except _UNCHECKABLE:
            return None
        return "\n".join(dict.fromkeys(map(_explain, errors))) or None


def _explain(error: ValidationError) -> str:
    path = ".".join(str(part) for part in error.absolute_path)
    if not isinstance(error.schema, Mapping):
        return f"Argument {path!r} is not allowed." if path else "No arguments are allowed."
    return explain_json_schema_error(error)


def _not_json(name: str, value: Any) -> str | None:
    """Python's JSON reader takes what JSON does not have: NaN, infinity, numbers without end."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return f"Argument {name!r} cannot be written as JSON: NaN, Infinity and endless nesting are not allowed."
    return None
