"""Short forms of environments' descriptions."""

from __future__ import annotations

__all__ = ["first_line"]


def first_line(description: str) -> str:
    """The first paragraph of a description in one line, or a dash if there is none."""
    return " ".join(description.strip().partition("\n\n")[0].split()) or "-"
