"""Finding the error that matters."""

from __future__ import annotations

from typing import cast

__all__ = ["innermost"]


def innermost(error: BaseException) -> BaseException:
    """The error itself, out of the groups that task groups wrap it in."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
