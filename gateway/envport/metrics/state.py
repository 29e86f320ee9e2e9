"""What is read when it is asked for: episodes, admission, runtimes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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
    """How the episodes are that run here.

    Attributes:
        environments: Names of what is served.
        counts: Live episodes by environment and status.
        capacity: How many there may be.
        waiting: Requests that wait for room.
        loads: What each runtime is running.
        memory: Bytes that the workers of a runtime take, where they have memory of their own.
    """

    environments: tuple[str, ...]
    counts: Counter[tuple[str, Status]]
    capacity: int
    waiting: int
    loads: Mapping[RuntimeKind, Load]
    memory: Mapping[RuntimeKind, int]

    @classmethod
    async def of(cls, episodes: Episodes) -> EpisodesState:
        """Read it, in the event loop of the episodes."""
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
    """How a gateway is at one moment.

    Attributes:
        held: Episodes that hold a place, on all machines.
        here: Of those that run here; `None` if they run on other machines.
    """

    held: int
    here: EpisodesState | None

    @classmethod
    async def of(cls, table: EpisodeTable, episodes: Episodes | None) -> GatewayState:
        """Read it, in the event loop of the episodes."""
        return cls(table.live, await EpisodesState.of(episodes) if episodes is not None else None)


class StateCollector(Collector):
    """Shows the state that it was given last."""

    def __init__(self) -> None:
        self.state: GatewayState | None = None

    def collect(self) -> Iterable[Metric]:
        """The metrics; none before there is a state."""
        if self.state is None:
            return
        yield GaugeMetricFamily("envport_admission_held", "Places for episodes that are taken.", self.state.held)
        if self.state.here is not None:
            yield from _here(self.state.here)


def _here(state: EpisodesState) -> Iterable[Metric]:
    episodes = GaugeMetricFamily("envport_episodes", "Live episodes.", labels=("environment", "status"))
    for environment in state.environments:
        # A series that is zero is there all the same, so that it can be seen to fall.
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
