"""Checks of what users give in Python, where nothing else looks at the types."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, cast

from envport.errors import ConfigurationError
from envport.tools.allowed import cut

__all__ = ["require_bool", "require_paths", "require_positive", "require_positive_whole", "require_text"]


def require_bool(name: str, value: object) -> None:
    """Check that an argument is true or false."""
    _require(name, value, isinstance(value, bool), "True or False")


def require_positive_whole(name: str, value: object) -> None:
    """Check that an argument is a whole number above 0."""
    holds = isinstance(value, int) and not isinstance(value, bool) and value > 0
    _require(name, value, holds, "a positive whole number")


def require_positive(name: str, value: object) -> None:
    """Check that an argument is a number above 0."""
    # `nan` is not above 0 either.
    holds = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    _require(name, value, holds, "a positive number")


def require_text(name: str, value: object, allowed: str) -> None:
    """Check that an argument is a text.

    Args:
        name: Its name.
        value: What was given.
        allowed: What the text can be.
    """
    _require(name, value, isinstance(value, str), allowed)


def require_paths(name: str, value: object) -> list[str]:
    """Check that an argument is several paths, and return them as texts. A text alone is not several paths."""
    several = isinstance(value, Iterable) and not isinstance(value, str | bytes)
    given = list(cast("Iterable[Any]", value)) if several else []
    right = several and all(isinstance(path, str | os.PathLike) for path in given)
    _require(name, cast("object", value), right, "a list of paths, such as ['/data']")
    return [os.fspath(path) for path in given]


def _require(name: str, value: object, holds: bool, allowed: str) -> None:
    if not holds:
        raise ConfigurationError(f"{name} is {cut(repr(value))}; allowed: {allowed}")
