"""The statuses of an episode, and the allowed changes between them."""

from __future__ import annotations

from typing import Final

from envport.types import Status

__all__ = ["GONE", "LIVE", "NEXT"]

LIVE: Final[frozenset[Status]] = frozenset({"opening", "running"})
"""The episode can be played, now or soon."""

GONE: Final[frozenset[Status]] = frozenset({"closed", "expired"})
"""The episode can be looked up, but never played again."""

NEXT: Final[dict[Status, frozenset[Status]]] = {
    "opening": frozenset({"running", "failed", "closed", "expired"}),
    "running": frozenset({"opening", "scoring", "terminated", "truncated", "failed", "closed", "expired"}),
    "scoring": frozenset({"terminated", "truncated", "failed", "closed", "expired"}),
    "terminated": frozenset({"opening", "closed", "expired"}),
    "truncated": frozenset({"opening", "closed", "expired"}),
    "failed": frozenset({"opening", "closed", "expired"}),
    "closed": frozenset(),
    "expired": frozenset(),
}
"""The statuses that may follow each status. Only a reset lets an ended episode run again."""
