"""The scheme `ors:`."""
