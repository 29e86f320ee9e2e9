"""What the load generator is asked to do, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Job", "Sample"]


@dataclass(frozen=True, slots=True)
class Job:
    """Work for the load generator.

    Attributes:
        kind: `calls` of the tool; `opens` of episodes; `hold` episodes open, each called once, and leave them;
            `stay` connected, each in an episode of its own that was called, until this process is killed.
        target: Name of the target.
        url: Where its server is.
        pid: The server's process.
        callers: How many callers there are at a time, each with a connection and, where it plays, an episode.
        count: How many calls or episodes in all.
    """

    kind: Literal["calls", "opens", "hold", "stay"]
    target: str
    url: str
    pid: int
    callers: int
    count: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What a job cost.

    Attributes:
        count: How many calls or episodes were measured.
        seconds: How long they took in all.
        cpu_seconds: CPU time that the server used meanwhile.
        p50: Median latency in seconds, as the callers saw it.
        p99: 99th percentile of the latency in seconds.
    """

    count: int
    seconds: float
    cpu_seconds: float
    p50: float
    p99: float
