"""Moved to `envport_bridges.evaluation.players`."""
