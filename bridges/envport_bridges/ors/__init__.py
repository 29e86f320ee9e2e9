"""The Open Reward Standard's protocol in front of every environment: its clients play our episodes."""

from envport_bridges.ors.routes import ors_root_surface, ors_surface

__all__ = ["ors_root_surface", "ors_surface"]
