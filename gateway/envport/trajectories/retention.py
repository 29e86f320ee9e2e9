"""How long episodes are kept."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Retention"]


@dataclass(frozen=True, slots=True)
class Retention:
    """How long ended episodes are kept. The oldest are deleted first, and live ones never.

    Attributes:
        days: Days after its end until an episode is deleted; `None` for no limit.
        gib: GiB that the calls and images of all episodes may take; `None` for no limit.
    """

    days: float | None = None
    gib: float | None = None
