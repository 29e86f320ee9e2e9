"""What is to be played, and on which machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from envport.bench.capacity.costs import Surface

__all__ = ["EpisodeDemand", "MachineSize", "PlannedRuntime"]

PlannedRuntime = Literal["inline", "process", "ray"]
"""As in `envport serve --runtime`. With `ray`, hosts run the episodes; otherwise, each gateway runs its own."""


@dataclass(frozen=True, slots=True)
class EpisodeDemand:
    """What is to be played.

    Attributes:
        episodes: Episodes that are open at the same time.
        think_seconds: Seconds between two calls of an episode: mostly the time of the model.
        calls: Calls of an episode. Then another one is opened.
        surface: How they are called.
        runtime: What runs them.
        environment_ms: CPU time that the environment itself needs for a call, in milliseconds.
        environment_mb: Memory that the environment itself needs for an episode, in MB.
    """

    episodes: int
    think_seconds: float = 10.0
    calls: int = 20
    surface: Surface = "channel"
    runtime: PlannedRuntime = "inline"
    environment_ms: float = 0.0
    environment_mb: float = 0.0

    @property
    def calls_per_second(self) -> float:
        """Calls a second of all episodes."""
        return self.episodes / self.think_seconds

    @property
    def opens_per_second(self) -> float:
        """Openings a second."""
        return self.calls_per_second / self.calls

    @property
    def writes_per_second(self) -> float:
        """Lines that are recorded a second: one for each call, and the beginning and the end of each episode."""
        return self.calls_per_second + 2 * self.opens_per_second


@dataclass(frozen=True, slots=True)
class MachineSize:
    """The machines that there are.

    Attributes:
        cores: Cores of each, as fast as those of the measurements.
        memory_gb: Memory of each, in GB.
        busy: Share of the time in which a core or an event loop may be busy. Latency grows fast above a half.
        descriptors: Open files that a process may have (`ulimit -Hn`); that of a service of systemd if not given.
        processes: Processes and threads that a machine may have (`kernel.pid_max`, `pids.max` of a container); Linux's
            own default if not given.
        ports: Connections from one address of a proxy to one gateway (`net.ipv4.ip_local_port_range`).
    """

    cores: int = 16
    memory_gb: float = 64.0
    busy: float = 0.5
    descriptors: int = 524_288
    processes: int = 32_768
    ports: int = 28_232
