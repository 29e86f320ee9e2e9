"""Metrics that are read at each request: episodes, admission and runtimes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from envport.environment import RuntimeKind
from envport.episodes import Episodes, EpisodeTable
from envport.episodes.states import LIVE
from envport.runtimes import Load
from envport.types import Status

__all__ = ["GatewayState", "StateCollector"]


@dataclass(frozen=True)
class EpisodesState:
    """The state of the episodes that run here.

    Attributes:
        environments: Names of the served environments.
        counts: Number of live episodes by environment and status.
        capacity: Maximum number of live episodes.
        waiting: Number of requests that wait for room.
        loads: The load of each runtime.
        memory: Memory of the workers of each runtime in bytes, for runtimes whose workers have their own memory.
    """

    environments: tuple[str, ...]
    counts: Counter[tuple[str, Status]]
    capacity: int
    waiting: int
    loads: Mapping[RuntimeKind, Load]
    memory: Mapping[RuntimeKind, int]

    @classmethod
    async def of(cls, episodes: Episodes) -> EpisodesState:
        """Read the state. Has to run in the event loop of the episodes."""
        runtimes = dict(episodes.runtimes)
        memory: dict[RuntimeKind, int] = {}
        for kind, runtime in runtimes.items():
            if (taken := await runtime.memory()) is not None:
                memory[kind] = taken
        return cls(
            environments=tuple(episodes.environments),
            counts=episodes.census(),
            capacity=episodes.limits.max_episodes,
            waiting=episodes.waiting,
            loads={kind: runtime.load() for kind, runtime in runtimes.items()},
            memory=memory,
        )


@dataclass(frozen=True)
class GatewayState:
    """The state of a gateway at one moment.

    Attributes:
        held: Number of episodes that hold a place, on all machines.
        here: State of the episodes that run here; `None` if they run on other machines.
        sessions: Number of open MCP sessions; `None` if no MCP endpoints are served.
    """

    held: int
    here: EpisodesState | None
    sessions: int | None = None

    @classmethod
    async def of(
        cls, table: EpisodeTable, episodes: Episodes | None, sessions: Callable[[], int] | None = None
    ) -> GatewayState:
        """Read the state. Has to run in the event loop of the episodes."""
        here = await EpisodesState.of(episodes) if episodes is not None else None
        return cls(table.live, here, sessions() if sessions is not None else None)


class StateCollector(Collector):
    """Exposes the latest state that was set."""

    def __init__(self) -> None:
        self.state: GatewayState | None = None

    def collect(self) -> Iterable[Metric]:
        """The metrics; none before a state is set."""
        if self.state is None:
            return
        yield GaugeMetricFamily("envport_admission_held", "Places for episodes that are taken.", self.state.held)
        if self.state.sessions is not None:
            documentation = "Open MCP sessions of the handshake era (2025-11-25 and before)."
            yield GaugeMetricFamily("envport_mcp_sessions", documentation, self.state.sessions)
        if self.state.here is not None:
            yield from _here(self.state.here)


def _here(state: EpisodesState) -> Iterable[Metric]:
    episodes = GaugeMetricFamily("envport_episodes", "Live episodes.", labels=("environment", "status"))
    for environment in state.environments:
        # Expose a series that is zero too, so that a chart shows that it fell to zero.
        for status in sorted(LIVE):
            episodes.add_metric((environment, status), state.counts[environment, status])
    yield episodes
    yield GaugeMetricFamily("envport_admission_capacity", "Places for episodes in all.", state.capacity)
    yield GaugeMetricFamily("envport_admission_waiting", "Requests that wait for a place.", state.waiting)
    yield _by_runtime(
        "envport_runtime_workers",
        "Instances of environments that a runtime holds.",
        {kind: load.workers for kind, load in state.loads.items()},
    )
    yield _by_runtime(
        "envport_runtime_busy_workers",
        "Those of them in which a call is running.",
        {kind: load.busy for kind, load in state.loads.items()},
    )
    yield _by_runtime(
        "envport_runtime_memory_bytes",
        "Memory of the processes that run environments, what they share counted once.",
        state.memory,
    )


def _by_runtime(name: str, documentation: str, values: Mapping[RuntimeKind, float]) -> Metric:
    family = GaugeMetricFamily(name, documentation, labels=("runtime",))
    for kind, value in values.items():
        family.add_metric((kind,), value)
    return family
