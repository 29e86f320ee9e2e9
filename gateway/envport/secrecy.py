"""Which environment variables are secrets of the gateway, so that no player's or agent's process inherits them."""

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
"""They hold the keys of collectors."""


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables without envport's own, which hold its tokens, and without the keys of collectors."""
    return {name: value for name, value in environ.items() if not name.startswith(_PREFIX) and name not in _NAMES}
