"""Episodes: one object each, and the table that opens, finds and ends them."""

from envport.episodes.admission import Admission
from envport.episodes.answers import tool_error, tool_result
from envport.episodes.base import EpisodeTable, Found, Opening
from envport.episodes.callers import Leaving, while_connected
from envport.episodes.catalogue import environment_info, task_page
from envport.episodes.episode import Episode
from envport.episodes.faults import whose
from envport.episodes.forms import ForkFields, OpenFields, TaskFields, call_id_of, field_at, told_of_fields
from envport.episodes.limits import Limits
from envport.episodes.play import CallResult
from envport.episodes.readiness import Preparation
from envport.episodes.recorded import RecordedEpisodes
from envport.episodes.requests import EpisodeStart, OpenRequest, resolve
from envport.episodes.table import Episodes
from envport.episodes.watched import EpisodeObserver, Unobserved, WatchedTable

__all__ = [
    "Admission",
    "CallResult",
    "Episode",
    "EpisodeObserver",
    "EpisodeStart",
    "EpisodeTable",
    "Episodes",
    "ForkFields",
    "Found",
    "Leaving",
    "Limits",
    "OpenFields",
    "OpenRequest",
    "Opening",
    "Preparation",
    "RecordedEpisodes",
    "TaskFields",
    "Unobserved",
    "WatchedTable",
    "call_id_of",
    "environment_info",
    "field_at",
    "resolve",
    "task_page",
    "told_of_fields",
    "tool_error",
    "tool_result",
    "while_connected",
    "whose",
]
