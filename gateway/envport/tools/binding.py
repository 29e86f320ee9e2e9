"""From a model's arguments to a method's keyword arguments: checked against the schema, never coerced."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, cast

from jsonschema.protocols import Validator
from pydantic import BaseModel, ValidationError

from envport.errors import InvalidArguments
from envport.tools.arguments import describe_allowed, describe_problems, explain_json_schema_error

__all__ = ["Binder", "ModelBinder", "SchemaBinder"]

_MOST_PROBLEMS = 20
# Beyond this, explaining each takes the event loop for seconds.
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
        # A copy, so that what the environment does to its arguments is not recorded as what the player sent.
        copied = cast("dict[str, Any]", json.loads(json.dumps(arguments, allow_nan=False)))
        errors = islice(self.validator.iter_errors(copied), _MOST_PROBLEMS)
        if problems := [explain_json_schema_error(error, self.schema) for error in errors]:
            raise InvalidArguments("\n".join(problems))
        return copied


@dataclass(frozen=True)
class ModelBinder:
    """Checks arguments with a pydantic model in strict mode and passes on what the caller gave.

    What the caller left out is the method's own default, except where that is a `Field(...)`: those are filled in.
    """

    model: type[BaseModel]
    schema: Mapping[str, Any]
    parameters: Mapping[str, str]
    flat: bool
    filled: frozenset[str]

    def __call__(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The values that the method's type hints promise."""
        validator = self.model.__pydantic_validator__
        try:
            if self.flat:
                bound = validator.validate_python(arguments, strict=True)
            else:
                # Strict mode takes an enum's value or a date's text from JSON, but not from Python.
                bound = validator.validate_json(json.dumps(arguments, allow_nan=False), strict=True)
        except ValidationError as error:
            if error.error_count() > _MOST_EXPLAINED:
                raise InvalidArguments(self._in_short(arguments)) from None
            raise InvalidArguments(describe_problems(error, arguments, self.schema)) from None
        values = bound.__dict__
        return {self.parameters[name]: values[name] for name in bound.__pydantic_fields_set__ | self.filled}

    def _in_short(self, arguments: Mapping[str, Any]) -> str:
        properties = cast("Mapping[str, Any]", self.schema["properties"])
        large = [name for name in arguments if name in properties and isinstance(arguments[name], (list, dict))]
        lines = [f"Argument {name!r} has to be {describe_allowed(properties[name], self.schema)}." for name in large]
        known = ", ".join(properties) or "none"
        return "\n".join([f"More than {_MOST_EXPLAINED:,} things are wrong; the arguments are: {known}.", *lines])
