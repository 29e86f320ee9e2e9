"""Episodes: one object each, and the table that opens, finds and ends them."""

from envport.episodes.admission import Admission
from envport.episodes.base import EpisodeTable, Found, Opening
from envport.episodes.choosing import choose
from envport.episodes.episode import Episode
from envport.episodes.limits import Limits
from envport.episodes.local import LocalTable
from envport.episodes.observer import EpisodeObserver, Unobserved
from envport.episodes.play import CallResult, EpisodeRequest
from envport.episodes.readiness import Preparation
from envport.episodes.table import Episodes
from envport.episodes.watched import WatchedTable

__all__ = [
    "Admission",
    "CallResult",
    "Episode",
    "EpisodeObserver",
    "EpisodeRequest",
    "EpisodeTable",
    "Episodes",
    "Found",
    "Limits",
    "LocalTable",
    "Opening",
    "Preparation",
    "Unobserved",
    "WatchedTable",
    "choose",
]
