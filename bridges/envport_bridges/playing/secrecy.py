"""Keeping tokens from programs that run as the same user."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping

__all__ = ["hide_memory", "without_secrets"]

_PR_SET_DUMPABLE = 4


def hide_memory() -> None:
    """Close this process's memory and environment variables to others of the same user, where Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables without any of envport's: they hold the token of the control plane."""
    return {name: value for name, value in environ.items() if not name.startswith("ENVPORT_")}
