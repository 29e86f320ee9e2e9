"""What happened in episodes, recorded as it happens."""

from envport.trajectories.store import MemoryTrajectories, TrajectoryStore

__all__ = ["MemoryTrajectories", "TrajectoryStore"]
