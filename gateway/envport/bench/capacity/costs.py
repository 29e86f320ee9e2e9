"""The measured costs, read from what the benchmarks write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from envport.bench.recording import FILLING_CALL, FILLING_EPISODE, FILLING_MEMORY
from envport.errors import ConfigurationError

__all__ = ["SURFACES", "ClusterCosts", "Costs", "GatewayCosts", "ProcessCosts", "RoleCosts", "StoreCosts", "Surface"]

Surface = Literal["channel", "http", "sessions"]
"""`channel`: the rollout channel. `http`: MCP at the address of each episode. `sessions`: the same, with a session of
the older era for each episode."""

SURFACES: Mapping[Surface, str] = {"channel": "channel", "http": "episode-modern", "sessions": "episode-legacy"}
"""The target of `envport bench` that measures each surface."""

# `envport bench` measures openings in two ways; with a session, an episode is opened over HTTP too.
_OPENED: Mapping[Surface, str] = {**SURFACES, "sessions": SURFACES["http"]}
# A loop that is busy half of the time mostly has one call at a time. With 64 at a time, each costs about half of that.
_CALLERS = 1


@dataclass(frozen=True, slots=True)
class GatewayCosts:
    """What a gateway needs that runs its episodes in its own process (`envport bench --json`).

    Attributes:
        call_us: CPU time of a call by surface, one at a time, in microseconds.
        open_us: CPU time of opening and closing an episode, by surface, one at a time, in microseconds.
        gateway_mb: Memory of a gateway without episodes, in MB.
        episode_kb: Memory of an open episode, in KB.
        session_kb: Memory of an open episode with a session, in KB.
    """

    call_us: Mapping[Surface, float]
    open_us: Mapping[Surface, float]
    gateway_mb: float
    episode_kb: float
    session_kb: float

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a report of `envport bench`.

        Raises:
            ConfigurationError: The file is missing, is no such report, or lacks a part.
        """
        data = _object(_text(file), file)
        try:
            held = {part["target"]: part for part in data["held"]}
            return cls(
                {surface: _cpu_us(data["rows"], target) for surface, target in SURFACES.items()},
                {surface: _cpu_us(data["opens"], target) for surface, target in _OPENED.items()},
                held["episode-modern"]["before_mb"],
                held["episode-modern"]["each_kb"],
                held["episode-legacy"]["each_kb"],
            )
        except (KeyError, TypeError) as error:
            raise _incomplete(file, error, "envport bench --json FILE") from None


@dataclass(frozen=True, slots=True)
class ProcessCosts:
    """What an episode needs in a process of its own (`python -m envport.bench.runtimes --json`).

    Attributes:
        gateway_us: CPU time of a call in the gateway, above that of an episode without a process, in microseconds.
        episode_us: CPU time of a call in the episode's process, in microseconds.
        open_ms: Time to open an episode, one after the other, in milliseconds. The zygote forks them.
        episode_mb: Memory of an open episode, in MB.
    """

    gateway_us: float
    episode_us: float
    open_ms: float
    episode_mb: float

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what the bench of runtimes printed.

        Raises:
            ConfigurationError: The file is missing, has other content, or lacks a figure.
        """
        try:
            value = _figures(file)
            return cls(
                value["process: CPU of a call in the gateway"] - value["inline: CPU of a call"],
                value["process: CPU of a call in the episode's process"],
                value["process: time to open an episode, median"],
                value["process: memory of an open episode (USS, the gateway's included)"],
            )
        except (KeyError, TypeError) as error:
            raise _incomplete(file, error, "python -m envport.bench.runtimes --json > FILE") from None


@dataclass(frozen=True, slots=True)
class StoreCosts:
    """What the process needs that fills the database (`python -m envport.bench.recording --json`).

    Each gateway or host that runs episodes has one.

    Attributes:
        call_us: CPU time for a call, in microseconds.
        episode_us: CPU time for the beginning and the end of an episode, in microseconds.
        process_mb: Its memory, in MB.
    """

    call_us: float
    episode_us: float
    process_mb: float

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what the bench of recording printed.

        Raises:
            ConfigurationError: The file is missing, has other content, or lacks a figure.
        """
        try:
            value = _figures(file)
            return cls(value[FILLING_CALL], value[FILLING_EPISODE], value[FILLING_MEMORY])
        except (KeyError, TypeError) as error:
            raise _incomplete(file, error, "python -m envport.bench.recording --json > FILE") from None


@dataclass(frozen=True, slots=True)
class RoleCosts:
    """One figure for each kind of process of a cluster.

    Attributes:
        gateway: The gateway, which is a replica.
        host: The host, which runs the episodes of a node.
        episode: The processes of the episodes, and the zygote that forks them.
        ray: Ray's own processes.
    """

    gateway: float
    host: float
    episode: float
    ray: float

    @property
    def total(self) -> float:
        """The sum."""
        return self.gateway + self.host + self.episode + self.ray


@dataclass(frozen=True, slots=True)
class ClusterCosts:
    """What a cluster of one host and one gateway needs (`python examples/cluster/predict.py --json FILE`).

    Attributes:
        call_us: CPU time of a call over HTTP, one at a time, above that of an idle cluster, in microseconds.
        open_us: CPU time of an opening, above that of an idle cluster, in microseconds.
        idle_cores: CPU seconds a second of an idle cluster.
        gateway_mb: Memory of a gateway, in MB.
        host_mb: Memory of a host without its episodes, in MB.
        ray_mb: Memory of Ray's own processes on the head node, in MB.
        episode_mb: Memory of an open episode in host and process together, in MB.
        connection_kb: Memory of an idle client's connection in the gateway, in KB, without the kernel's.
        descriptors: Open files of an episode in its host.
        processes: Processes and threads of an episode.
        opens_per_second: Episodes opened a second.
    """

    call_us: RoleCosts
    open_us: RoleCosts
    idle_cores: RoleCosts
    gateway_mb: float
    host_mb: float
    ray_mb: float
    episode_mb: float
    connection_kb: float
    descriptors: float
    processes: float
    opens_per_second: float

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what the example wrote.

        Raises:
            ConfigurationError: The file is missing, has other content, or lacks a figure.
        """
        data = _object(_text(file), file)
        try:
            roles = {name: RoleCosts(**data.pop(name)) for name in ("call_us", "open_us", "idle_cores")}
            return cls(**roles, **data)
        except (KeyError, TypeError) as error:
            raise _incomplete(file, error, "python examples/cluster/predict.py --json FILE") from None


@dataclass(frozen=True, slots=True)
class Costs:
    """All costs.

    Attributes:
        gateway: Of a gateway and the episodes in it.
        process: Of an episode's own process.
        cluster: Of a Ray cluster.
        store: Of recording every episode in a database.
    """

    gateway: GatewayCosts
    process: ProcessCosts
    cluster: ClusterCosts
    store: StoreCosts


def _cpu_us(rows: list[dict[str, Any]], target: str) -> float:
    by_callers = {row["callers"]: row["cpu_us"] for row in rows if row["target"] == target}
    if _CALLERS not in by_callers:
        raise KeyError(f"{target} with {_CALLERS} caller")
    return by_callers[_CALLERS]


def _figures(file: Path) -> dict[str, float]:
    """The values of a bench that prints a figure on each line, by name."""
    figures = [_object(line, file) for line in _text(file).splitlines() if line.strip()]
    return {figure["what"]: float(figure["value"]) for figure in figures}


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from None


def _object(text: str, file: Path) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{file} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"{file} has no JSON object, as the benchmarks write it")
    return found  # pyright: ignore[reportUnknownVariableType]


def _incomplete(file: Path, error: Exception, command: str) -> ConfigurationError:
    return ConfigurationError(f"{file} lacks a figure ({error}). Make it with: {command}")
