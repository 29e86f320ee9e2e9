"""Turns a model's arguments into a method's keyword arguments: checked against the schema, never coerced."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

from jsonschema.protocols import Validator
from pydantic import BaseModel, ValidationError

from envport.errors import InvalidArguments
from envport.tools.allowed import describe_allowed, listed
from envport.tools.arguments import describe_problems, schema_problems
from envport.tools.dialects import validator_of
from envport.tools.plain import PlainCheck, plain_check

__all__ = ["Binder", "ModelBinder", "SchemaBinder"]

# Explaining more problems than this would block the event loop for seconds.
_MOST_EXPLAINED = 1_000


class Binder(Protocol):
    """Turns a model's arguments into keyword arguments, or refuses them."""

    def __call__(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments.

        Raises:
            InvalidArguments: Names each argument that breaks the schema.
        """
        ...


@dataclass(frozen=True)
class SchemaBinder:
    """Checks arguments against a JSON Schema and passes them on as they are."""

    validator: Validator
    schema: Mapping[str, Any]

    def __call__(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, copied."""
        if self._plain is not None and self._plain(arguments):
            return dict(arguments)
        # The environment may change its arguments. The copy keeps the recorded arguments as the player sent them.
        copied = cast("dict[str, Any]", json.loads(json.dumps(arguments, allow_nan=False)))
        if problems := schema_problems(self.validator, copied):
            raise InvalidArguments(problems)
        return copied

    @cached_property
    def _plain(self) -> PlainCheck | None:
        return plain_check(self.schema)


@dataclass(frozen=True)
class ModelBinder:
    """Checks arguments with a pydantic model in strict mode, and passes on the arguments that the caller gave.

    An argument that the caller left out gets the method's own default. If that default is a `Field(...)`, the value
    is filled in here.
    """

    model: type[BaseModel]
    schema: Mapping[str, Any]
    parameters: Mapping[str, str]
    flat: bool
    filled: frozenset[str]

    def __call__(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments, with values of the types that the method declares."""
        validator = self.model.__pydantic_validator__
        try:
            if self.flat:
                bound = validator.validate_python(arguments, strict=True)
            else:
                # Strict mode accepts an enum's value or a date's text from JSON, but not from Python.
                bound = validator.validate_json(json.dumps(arguments, allow_nan=False), strict=True)
        except ValidationError as error:
            if error.error_count() > _MOST_EXPLAINED:
                raise InvalidArguments(self._in_short(arguments)) from None
            raise InvalidArguments(describe_problems(error, arguments, self._explainer)) from None
        values = bound.__dict__
        return {self.parameters[name]: values[name] for name in bound.__pydantic_fields_set__ | self.filled}

    @cached_property
    def _explainer(self) -> Validator:
        """Says in which part of the schema a value is wrong. Patterns are pydantic's, which no text can make slow."""
        return validator_of(self.schema, patterns=False)

    def _in_short(self, arguments: Mapping[str, Any]) -> str:
        properties = cast("Mapping[str, Any]", self.schema["properties"])
        large = [name for name in arguments if name in properties and isinstance(arguments[name], (list, dict))]
        lines = [f"Argument {name!r} has to be {describe_allowed(properties[name], self.schema)}." for name in large]
        known = listed(properties) or "none"
        return "\n".join([f"More than {_MOST_EXPLAINED:,} things are wrong; the arguments are: {known}.", *lines])
