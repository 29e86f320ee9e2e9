"""The scheme `openenv:`."""
