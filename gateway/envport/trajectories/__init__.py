"""Trajectories: recordings of episodes."""

from envport.trajectories.archive import Archive, EpisodeFilter, EpisodePage, Origin, Period, StoredEpisode
from envport.trajectories.memory import MemoryTrajectories
from envport.trajectories.retention import Retention
from envport.trajectories.store import EpisodeSnapshot, ResumePoint, Totals, TrajectoryStore

__all__ = [
    "Archive",
    "EpisodeFilter",
    "EpisodePage",
    "EpisodeSnapshot",
    "MemoryTrajectories",
    "Origin",
    "Period",
    "ResumePoint",
    "Retention",
    "StoredEpisode",
    "Totals",
    "TrajectoryStore",
]
