"""Hides this process's memory from programs that run as the same user."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["hide_memory"]

_PR_SET_DUMPABLE = 4


def hide_memory() -> None:
    """On Linux, hide this process's memory and environment variables from other processes of the same user."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
