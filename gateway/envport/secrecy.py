"""Removes the gateway's secrets from environment variables, so that no player's or agent's process inherits them."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["without_secrets"]

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
