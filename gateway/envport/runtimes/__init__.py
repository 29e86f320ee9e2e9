"""Runtimes: they run environments behind a small Protocol, so that an episode does not depend on where."""

from envport.runtimes.base import UNBOUNDED, Bounds, Load, ProgressSink, Runtime, StepResult, Worker
from envport.runtimes.local import InlineRuntime, ThreadRuntime
from envport.runtimes.selection import kind_for, runtime_for

__all__ = [
    "UNBOUNDED",
    "Bounds",
    "InlineRuntime",
    "Load",
    "ProgressSink",
    "Runtime",
    "StepResult",
    "ThreadRuntime",
    "Worker",
    "kind_for",
    "runtime_for",
]
