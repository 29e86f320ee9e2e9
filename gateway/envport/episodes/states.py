"""Where an episode can be, and where it can go from there."""

from __future__ import annotations

from typing import Final

from envport.types import Status

__all__ = ["GONE", "LIVE", "NEXT"]

LIVE: Final[frozenset[Status]] = frozenset({"opening", "running"})
"""It can be played, now or soon."""

GONE: Final[frozenset[Status]] = frozenset({"closed", "expired"})
"""It can be looked at, but never be played again."""

NEXT: Final[dict[Status, frozenset[Status]]] = {
    "opening": frozenset({"running", "failed", "closed", "expired"}),
    "running": frozenset({"opening", "terminated", "truncated", "failed", "closed", "expired"}),
    "terminated": frozenset({"opening", "closed", "expired"}),
    "truncated": frozenset({"opening", "closed", "expired"}),
    "failed": frozenset({"opening", "closed", "expired"}),
    "closed": frozenset(),
    "expired": frozenset(),
}
"""What each status may become. An ended episode runs again only by being reset."""
