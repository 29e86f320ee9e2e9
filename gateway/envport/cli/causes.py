"""Finds the original error inside exception groups."""

from __future__ import annotations

from typing import cast

__all__ = ["innermost"]


def innermost(error: BaseException) -> BaseException:
    """The error itself, without the exception groups that task groups add."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
