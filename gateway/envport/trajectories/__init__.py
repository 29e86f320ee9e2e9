"""Trajectories: recordings of episodes."""

from envport.trajectories.archive import Archive, EpisodeFilter, EpisodePage, Period, Provenance, StoredEpisode
from envport.trajectories.lines import recorded_form
from envport.trajectories.memory import MemoryTrajectories
from envport.trajectories.recorded import RecordedEpisode, read_recorded
from envport.trajectories.retention import Retention
from envport.trajectories.store import EpisodeSnapshot, EpisodeState, ResumePoint, Totals, TrajectoryStore

__all__ = [
    "Archive",
    "EpisodeFilter",
    "EpisodePage",
    "EpisodeSnapshot",
    "EpisodeState",
    "MemoryTrajectories",
    "Period",
    "Provenance",
    "RecordedEpisode",
    "ResumePoint",
    "Retention",
    "StoredEpisode",
    "Totals",
    "TrajectoryStore",
    "read_recorded",
    "recorded_form",
]
