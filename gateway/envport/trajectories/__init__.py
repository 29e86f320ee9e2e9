"""Trajectories: recordings of episodes."""

from envport.trajectories.archive import Archive, EpisodeFilter, EpisodePage, Period, StoredEpisode
from envport.trajectories.memory import MemoryTrajectories
from envport.trajectories.recorded import RecordedEpisode, read_recorded
from envport.trajectories.retention import Retention
from envport.trajectories.store import EpisodeSnapshot, Totals, TrajectoryStore

__all__ = [
    "Archive",
    "EpisodeFilter",
    "EpisodePage",
    "EpisodeSnapshot",
    "MemoryTrajectories",
    "Period",
    "RecordedEpisode",
    "Retention",
    "StoredEpisode",
    "Totals",
    "TrajectoryStore",
    "read_recorded",
]
