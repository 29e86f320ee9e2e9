"""Cheats of a user: functions that get a `Table` and return the next call, or `None` to stop."""

from __future__ import annotations

from typing import Any, cast

from envport.errors import InvalidOption
from envport.modules import module_at
from envport_bridges.audit.players import AuditPlayer

__all__ = ["load_cheat"]


def load_cheat(reference: str) -> AuditPlayer:
    """Find a cheat.

    Args:
        reference: `package.module:function` or `./file.py:function`.

    Raises:
        InvalidOption: There is no such function.
    """
    where, colon, name = reference.rpartition(":")
    found = getattr(module_at(where), name, None) if colon and where else None
    if not callable(found):
        raise InvalidOption(f"--cheat {reference} names no function: give module:function or ./file.py:function")
    return AuditPlayer(name, "cheat", cast("Any", found))
