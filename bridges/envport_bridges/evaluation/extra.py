"""The extra `eval`."""

from __future__ import annotations

from importlib.util import find_spec

from envport.errors import MissingExtra

__all__ = ["require_extra"]


def require_extra() -> None:
    """Check that Inspect is installed.

    Raises:
        MissingExtra: Inspect is not installed.
    """
    if find_spec("inspect_ai") is None:
        raise MissingExtra("Evaluation", "eval")
