"""Checking a model's arguments against a tool's input schema, before anything is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from jsonschema import ValidationError
from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema_specifications import REGISTRY  # pyright: ignore[reportMissingTypeStubs]
from referencing.exceptions import Unresolvable

from envport.blocks import nesting
from envport.tools.arguments import schema_problems
from envport.tools.dialects import check_schema, validator_of
from envport.tools.plain import PlainCheck, plain_check
from envport.tools.references import endless_reference, refers

__all__ = ["ArgumentSchema"]

_UNCHECKABLE = (Unresolvable, SchemaError, re.error, RecursionError)
_NEVER_TOO_DEEP = 40
_TOO_DEEP = "The arguments are nested too deeply to be checked."


class ArgumentSchema:
    """A tool's input schema, as a check.

    What the schema refuses is told in words for the model. A schema that cannot be applied here (a reference that
    leads nowhere, a broken pattern) refuses nothing: the gateway has the last word. References are never
    fetched.

    Attributes:
        schema: The schema. Not to be changed.

    Args:
        schema: JSON Schema of the arguments, 2020-12 unless it names another dialect.
    """

    def __init__(self, schema: Mapping[str, Any]):
        self.schema = schema

    @cached_property
    def _fault(self) -> Exception | None:
        """What is wrong with the schema itself."""
        try:
            # Ignore broken patterns here: each one disables only its own part of the schema.
            check_schema(self.schema, patterns=False)
        except _UNCHECKABLE as error:
            return error
        return None

    @cached_property
    def _validator(self) -> Validator | None:
        return validator_of(self.schema, registry=REGISTRY) if self._fault is None else None

    @cached_property
    def _plain(self) -> PlainCheck | None:
        return plain_check(self.schema)

    @property
    def why_useless(self) -> str | None:
        """Why no arguments can ever be checked against the schema, as the end of a sentence; `None` if they can."""
        # The whole check takes a millisecond, and a listing may have a thousand tools.
        if nesting(self.schema) > _NEVER_TOO_DEEP and isinstance(self._fault, RecursionError):
            return "is nested too deeply to be checked"
        if not refers(self.schema) or self._fault is not None:
            return None
        endless = endless_reference(self.schema)
        return f"refers to {endless!r}, which leads back to itself" if endless is not None else None

    def problems(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments, one line each, in the gateway's words; `None` if nothing is.

        Args:
            arguments: What the model wrote, as parsed JSON.
        """
        if self._plain is not None and self._plain(arguments):
            return None
        lines = [_not_json(name, value) for name, value in arguments.items()]
        if any(lines):
            return "\n".join(filter(None, lines))
        if self._validator is None:
            return None
        try:
            return schema_problems(self._validator, arguments)
        except RecursionError:
            return _TOO_DEEP
        except _UNCHECKABLE:
            return None

    def accepts(self, name: str, value: Any, arguments: Mapping[str, Any]) -> bool:
        """Whether a value may stand for one of the arguments. True where the schema cannot be applied.

        Args:
            name: The argument.
            value: The value.
            arguments: All arguments, for conditions that span several.
        """
        return not self._about(name, value, arguments)

    def accepts_all(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the schema takes these arguments. False where it cannot be applied."""
        try:
            return self._validator is not None and self._validator.is_valid(dict(arguments))
        except _UNCHECKABLE:
            return False

    def expects(self, name: str, value: Any, arguments: Mapping[str, Any]) -> bool:
        """Whether a value is of a kind that the argument may have, be it too large, too long or the like.

        Args:
            name: The argument.
            value: The value.
            arguments: All arguments, for conditions that span several.
        """
        return all(map(_is_of_its_kind, self._about(name, value, arguments)))

    def _about(self, name: str, value: Any, arguments: Mapping[str, Any]) -> list[ValidationError]:
        """What the schema has against a value of one argument."""
        if self._validator is None:
            return []
        # Another argument may have a part of the schema that cannot be applied.
        for instance in ({**arguments, name: value}, {name: value}):
            try:
                errors = list(self._validator.iter_errors(instance))
            except _UNCHECKABLE:
                continue
            return [found for error in errors for found in _about_argument(error, name)]
        return []


_UNIONS = ("anyOf", "oneOf")
_KINDS = ("type", "const", "enum")


def _branches(error: ValidationError) -> list[list[ValidationError]]:
    """The errors of each branch of a union."""
    found: dict[Any, list[ValidationError]] = {}
    for part in error.context or ():
        found.setdefault(part.schema_path[0], []).append(part)
    return list(found.values())


def _about_argument(error: ValidationError, name: str) -> list[ValidationError]:
    """The error if it is about that argument; of a union of whole argument lists, if each branch has one about it."""
    if error.absolute_path:
        return [error] if error.absolute_path[0] == name else []
    if error.validator not in _UNIONS:
        return []
    branches = [[found for part in branch for found in _about_argument(part, name)] for branch in _branches(error)]
    return [found for branch in branches for found in branch] if branches and all(branches) else []


def _is_of_its_kind(error: ValidationError) -> bool:
    if error.validator in _UNIONS:
        return any(all(map(_is_of_its_kind, branch)) for branch in _branches(error))
    return error.validator not in _KINDS


def _not_json(name: str, value: Any) -> str | None:
    """Python's JSON reader takes what JSON does not have: NaN, infinity, numbers without end."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return f"Argument {name!r} cannot be written as JSON: NaN, Infinity and endless nesting are not allowed."
    return None
