"""Episodes: one object each, and the table that opens, finds and ends them."""

from envport.episodes.admission import Admission
from envport.episodes.episode import CallResult, Episode, EpisodeRequest
from envport.episodes.table import Episodes, Limits, choose

__all__ = ["Admission", "CallResult", "Episode", "EpisodeRequest", "Episodes", "Limits", "choose"]
