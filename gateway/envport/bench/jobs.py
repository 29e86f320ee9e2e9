"""The jobs of the load generator, and its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["BadAnswer", "Job", "JobKind", "Refused", "Sample", "SessionCosts"]

JobKind = Literal["calls", "opens", "hold", "stay", "gather", "tour", "rollouts"]


@dataclass(frozen=True, slots=True)
class Job:
    """Work for the load generator.

    Attributes:
        kind: `calls`: call the tool. `opens`: open and close episodes. `hold`: open episodes, call each one once, and
            leave them open. `stay`: open one episode per caller, call it, and stay connected until this process is
            killed. `gather`: open episodes over few connections, call each one once, and remember them. `tour`: call
            the remembered ones in turn. `rollouts`: call the tool with the client of the package that plays rollouts.
        target: Name of the target.
        url: Address of its server.
        pid: Process id of the server.
        callers: How many callers run at a time. Each has a connection and, if the target plays episodes, an episode.
        count: How many calls or episodes in all.
    """

    kind: JobKind
    target: str
    url: str
    pid: int
    callers: int
    count: int


@dataclass(frozen=True, slots=True)
class SessionCosts:
    """What sessions that are opened at once cost.

    Attributes:
        per_second: Sessions opened per second.
        kb: Memory of the server per session in KB: what it holds more than before.
        threads: Threads of the server per session.
    """

    per_second: float
    kb: float
    threads: float


@dataclass(frozen=True, slots=True)
class Sample:
    """The measured cost of a job.

    Attributes:
        count: How many calls or episodes were measured.
        seconds: How long they took in all.
        cpu_seconds: CPU time that the server used meanwhile.
        client_seconds: CPU time that the load generator used meanwhile.
        p50: Median latency in seconds, as the callers saw it.
        p99: 99th percentile of the latency in seconds.
        sessions: What opening the sessions cost; `None` where it was not measured.
    """

    count: int
    seconds: float
    cpu_seconds: float
    client_seconds: float
    p50: float
    p99: float
    sessions: SessionCosts | None = None


class BadAnswer(Exception):
    """A server gave a wrong answer."""


class Refused(BadAnswer):
    """The gateway had no capacity, and refused in the documented way.

    Args:
        message: The gateway's message.
        retry_after: Seconds to wait before the next try.
    """

    def __init__(self, message: str, retry_after: float):
        super().__init__(message)
        self.retry_after = retry_after
