"""Keeping this process's memory from programs that run as the same user."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["hide_memory"]

_PR_SET_DUMPABLE = 4


def hide_memory() -> None:
    """Close this process's memory and environment variables to others of the same user, where Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
