"""The options of an environment or a scheme: read from a reference or a file, and checked by their type hints."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, get_type_hints
from urllib.parse import parse_qsl

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import to_json

from envport.errors import InvalidOption
from envport.tools.allowed import describe_allowed

__all__ = ["OptionTypes"]

_EMPTY: Any = inspect.Parameter.empty


@dataclass(frozen=True)
class OptionTypes:
    """The options that a class or function takes as keyword arguments.

    Attributes:
        whose: Whose options they are, for messages, such as `environment 'catch'`.
        hints: The type of each option.
        required: The options without a default.
    """

    whose: str
    hints: Mapping[str, Any]
    required: tuple[str, ...]

    @classmethod
    def of_class(cls, whose: str, made: type) -> Self:
        """The options of a class: the parameters of its constructor."""
        return cls._of(whose, made, made.__init__)

    @classmethod
    def of_function(cls, whose: str, function: Callable[..., Any]) -> Self:
        """The options of a function: its keyword-only parameters."""
        hinted = function if inspect.isroutine(function) else type(function).__call__
        return cls._of(whose, function, hinted, inspect.Parameter.KEYWORD_ONLY)

    @classmethod
    def _of(cls, whose: str, signed: Callable[..., Any], hinted: Any, *kinds: Any) -> Self:
        never = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        parameters = [
            parameter
            for parameter in inspect.signature(signed).parameters.values()
            if (parameter.kind in kinds if kinds else parameter.kind not in never)
        ]
        hints = get_type_hints(hinted, include_extras=True)
        required = tuple(parameter.name for parameter in parameters if parameter.default is _EMPTY)
        return cls(whose, {parameter.name: hints.get(parameter.name, str) for parameter in parameters}, required)

    def without(self, name: str) -> OptionTypes:
        """The same without one option, which the caller gives itself."""
        hints = {key: hint for key, hint in self.hints.items() if key != name}
        return OptionTypes(self.whose, hints, tuple(key for key in self.required if key != name))

    def from_text(self, query: str) -> dict[str, Any]:
        """Read `key=value&key=value`.

        A value is converted to the option's type as on a command line. Lists and nested values are written as JSON.

        Raises:
            InvalidOption: An option is unknown, given twice, or has a bad value.
        """
        options: dict[str, Any] = {}
        for key, text in parse_qsl(query, keep_blank_values=True):
            if key in options:
                raise InvalidOption(f"{self.whose}: option {key!r} is given twice")
            options[key] = self._from_words(key, text)
        return options

    def from_data(self, values: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
        """Read options that have types already, such as those of a TOML file. Nothing is converted.

        Args:
            values: The options.
            folder: What options that are paths are relative to; the current folder if not given.

        Raises:
            InvalidOption: An option is unknown or has a bad value.
        """
        read = {key: self._from_value(key, value) for key, value in values.items()}
        if folder is None:
            return read
        return {key: folder / value if isinstance(value, Path) else value for key, value in read.items()}

    def require(self, options: Mapping[str, Any], example: str) -> None:
        """Check that every option without a default is given.

        Args:
            options: What is given.
            example: The reference, for the message.

        Raises:
            InvalidOption: One is missing.
        """
        if missing := [key for key in self.required if key not in options]:
            raise InvalidOption(f"{self.whose} needs the options {', '.join(missing)}: {example}?{missing[0]}=...")

    def _hint(self, key: str) -> Any:
        if key not in self.hints:
            allowed = ", ".join(f"{key} ({_allowed(hint)})" for key, hint in self.hints.items()) or "none"
            raise InvalidOption(f"{self.whose} has no option {key!r}; its options are: {allowed}")
        return self.hints[key]

    def _from_words(self, key: str, text: str) -> Any:
        adapter = _adapter(self._hint(key))
        try:
            return adapter.validate_strings(text)
        except ValidationError:
            pass
        try:
            return adapter.validate_json(text)
        except ValidationError:
            raise self._refusal(key, text) from None

    def _from_value(self, key: str, value: Any) -> Any:
        try:
            # As JSON, so that enums, paths and models can be written as text, in pydantic's strict mode.
            return _adapter(self._hint(key)).validate_json(to_json(value), strict=True)
        except ValidationError:
            raise self._refusal(key, value) from None

    def _refusal(self, key: str, value: Any) -> InvalidOption:
        return InvalidOption(f"{self.whose}: option {key!r} is {value!r}; it has to be {_allowed(self.hints[key])}")


def _adapter(hint: Any) -> TypeAdapter[Any]:
    # A model, dataclass or TypedDict has its own configuration, and accepts no other.
    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError:
        return TypeAdapter(hint)


def _allowed(hint: Any) -> str:
    try:
        schema = _adapter(hint).json_schema()
    except PydanticUserError:
        return str(getattr(hint, "__name__", hint))
    return describe_allowed(schema, schema)
