"""Where environments run: behind a small Protocol, so that an episode does not know."""

from envport.runtimes.base import ProgressSink, Runtime, StepResult, Worker
from envport.runtimes.local import InlineRuntime, ThreadRuntime, runtime_for

__all__ = ["InlineRuntime", "ProgressSink", "Runtime", "StepResult", "ThreadRuntime", "Worker", "runtime_for"]
