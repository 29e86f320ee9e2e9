"""OpenEnv's protocol in front of every environment: its clients play our episodes with the URL changed."""

from envport_bridges.openenv.routes import openenv_surface

__all__ = ["openenv_surface"]
