"""Limits on episodes: the gateway's settings, combined with what environments declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from envport.definition import EnvironmentDefinition
from envport.errors import ConfigurationError
from envport.runtimes import Bounds

__all__ = ["Limits"]

NumberT = TypeVar("NumberT", int, float)


@dataclass(frozen=True)
class Limits:
    """Limits on episodes.

    Attributes:
        max_episodes: Maximum number of live episodes in total.
        max_episodes_per_principal: Maximum for one principal; `None` if only the total limits it.
        max_episodes_per_environment: Maximum for one environment. The environment's own limit applies if not given.
        max_episodes_of: Maximum for single environments, by name. Overrides `max_episodes_per_environment`.
        idle_seconds: An episode expires after this many seconds without a call.
        max_waiting: How many requests for an episode may wait for room.
        wait_seconds: How long a request waits for room before it is refused.
        max_ended: How many ended episodes are remembered; the oldest are forgotten first.
        max_sessions: Maximum number of MCP sessions of the handshake era (2025-11-25 and before). At this limit, a new
            one ends the session that was unused for longest, of the principal that has the most.
        max_sessions_per_principal: Maximum for one principal. At this limit, a new one ends the principal's session
            that was unused for longest.
        call_seconds: Seconds that a tool call may take. For this and the following limits, the environment's own
            value applies if not given.
        reset_seconds: Seconds that creating and resetting an environment may take.
        score_seconds: Seconds that scoring the final state may take.
        max_seconds: An episode is truncated this many seconds after its reset.
        memory_mb: MiB of memory that an episode may use if it runs in its own process. For this and the following
            limits, all processes that it starts count.
        cpu_seconds: Seconds of CPU time that it may use.
        max_processes: Processes and threads that it may have.
    """

    max_episodes: int = 10_000
    max_episodes_per_principal: int | None = None
    max_episodes_per_environment: int | None = None
    max_episodes_of: Mapping[str, int] = field(default_factory=dict[str, int])
    idle_seconds: float = 1800.0
    max_waiting: int = 1_000
    wait_seconds: float = 5.0
    max_ended: int = 10_000
    max_sessions: int = 10_000
    max_sessions_per_principal: int = 5_000
    call_seconds: float | None = None
    reset_seconds: float | None = None
    score_seconds: float | None = None
    max_seconds: float | None = None
    memory_mb: float | None = None
    cpu_seconds: float | None = None
    max_processes: int | None = None

    def require(self, environments: Iterable[str]) -> None:
        """Check that every environment in `max_episodes_of` is served.

        Args:
            environments: Names of the served environments.

        Raises:
            ConfigurationError: An environment is not served.
        """
        served = list(environments)
        if unknown := [name for name in self.max_episodes_of if name not in served]:
            raise ConfigurationError(
                f"a limit on episodes is set for environment {unknown[0]!r}, which is not served; "
                f"served: {', '.join(map(repr, served)) or 'none'}"
            )

    def bounds(self, spec: EnvironmentDefinition) -> Bounds:
        """Time and memory limits of one episode of the environment."""
        declared = spec.prototype
        return Bounds(
            call_seconds=_either(self.call_seconds, declared.call_seconds),
            reset_seconds=_either(self.reset_seconds, declared.reset_seconds),
            score_seconds=_either(self.score_seconds, declared.score_seconds),
            close_seconds=declared.close_seconds,
            memory_mb=_either(self.memory_mb, declared.memory_mb),
            cpu_seconds=_either(self.cpu_seconds, declared.cpu_seconds),
            max_processes=_either(self.max_processes, declared.max_processes),
        )

    def episodes(self, spec: EnvironmentDefinition) -> int | None:
        """How many episodes of the environment may be live; `None` if only the total limits it."""
        if (named := self.max_episodes_of.get(spec.name)) is not None:
            return named
        said = self.max_episodes_per_environment
        return said if said is not None else spec.prototype.max_episodes

    def places(self, spec: EnvironmentDefinition) -> int:
        """How many live episodes of the environment one principal can have at most."""
        given = (self.max_episodes, self.max_episodes_per_principal, self.episodes(spec))
        return min(limit for limit in given if limit is not None)

    def seconds(self, spec: EnvironmentDefinition) -> float | None:
        """How many seconds an episode of the environment may last; `None` for no limit."""
        return _either(self.max_seconds, spec.prototype.max_seconds)


def _either(said: NumberT | None, declared: NumberT | None) -> NumberT | None:
    return said if said is not None else declared
