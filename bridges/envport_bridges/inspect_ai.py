"""Moved to `envport_bridges.evaluation.inspect_ai`. This module keeps the import path of the Inspect task."""

from envport_bridges.evaluation.inspect_ai import episode

__all__ = ["episode"]
