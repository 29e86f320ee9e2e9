"""Trajectories: recordings of the calls of episodes."""

from envport.trajectories.store import MemoryTrajectories, TrajectoryStore

__all__ = ["MemoryTrajectories", "TrajectoryStore"]
