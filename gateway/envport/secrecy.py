"""Keeps the gateway's secrets from the processes of environments and agents: in their variables, and in our memory."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping

__all__ = ["hide_memory", "without_secrets"]

_PR_SET_DUMPABLE = 4
_PREFIX = "ENVPORT_"
_NAMES = frozenset(
    {
        "OTEL_EXPORTER_OTLP_HEADERS",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
        "OTEL_EXPORTER_OTLP_LOGS_HEADERS",
    }
)
"""Variables that may contain the keys of trace and log collectors."""


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables, without those of envport, which hold its tokens, and without collectors' keys."""
    return {name: value for name, value in environ.items() if not name.startswith(_PREFIX) and name not in _NAMES}


def hide_memory() -> None:
    """On Linux, hide this process's memory and environment variables from other processes of the same user."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
