"""Runtimes: they run environments behind a small Protocol, so that an episode does not depend on where."""

from envport.runtimes.base import (
    UNBOUNDED,
    Bounds,
    Load,
    ProgressSink,
    Runtime,
    StepResult,
    Worker,
    contained,
    reward_of,
)
from envport.runtimes.local import SCORING, InlineRuntime, ThreadRuntime, overdue
from envport.runtimes.selection import in_another_process, kind_for, limits_kept_by, runtime_for

__all__ = [
    "SCORING",
    "UNBOUNDED",
    "Bounds",
    "InlineRuntime",
    "Load",
    "ProgressSink",
    "Runtime",
    "StepResult",
    "ThreadRuntime",
    "Worker",
    "contained",
    "in_another_process",
    "kind_for",
    "limits_kept_by",
    "overdue",
    "reward_of",
    "runtime_for",
]
