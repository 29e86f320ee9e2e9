"""`envport bench`."""

from __future__ import annotations

__all__ = ["bench"]


def bench() -> None:
    """Measure this machine."""
