"""A resources server of NeMo Gym in front of our episodes: its agents and its trainers play our environments."""

from envport_bridges.nemo_gym.routes import nemo_gym_root_surface, nemo_gym_surface

__all__ = ["nemo_gym_root_surface", "nemo_gym_surface"]
