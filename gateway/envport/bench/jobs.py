"""The jobs of the load generator, and its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Job", "Sample"]


@dataclass(frozen=True, slots=True)
class Job:
    """Work for the load generator.

    Attributes:
        kind: `calls`: call the tool. `opens`: open episodes. `hold`: open episodes, call each one once, and leave them
            open. `stay`: open one episode per caller, call it, and stay connected until this process is killed.
        target: Name of the target.
        url: Address of its server.
        pid: Process id of the server.
        callers: How many callers run at a time. Each has a connection and, if the target plays episodes, an episode.
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
    """The measured cost of a job.

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
