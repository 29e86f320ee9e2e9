"""The arithmetic: how many episodes one gateway and one machine can hold, and how many of both it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from envport.bench.capacity.costs import Costs
from envport.bench.capacity.demand import EpisodeDemand, MachineSize
from envport.errors import ConfigurationError

__all__ = ["Ceiling", "Plan", "Tier", "plan_for"]

# A limit of the gateway (`Limits.max_ended`): a process that runs episodes remembers so many that have ended.
_ENDED = 10_000
# Every gateway asks every host for its load once a second, but 50 hosts a second at most (`cluster/table.py`).
_ASKS_A_SECOND = 50
# Files that a process has open without any episode or connection, rounded up.
_OWN_DESCRIPTORS = 200
_ROUNDS = 1_000


@dataclass(frozen=True, slots=True)
class Ceiling:
    """How many episodes a resource of one gateway or one machine is enough for.

    Attributes:
        resource: The resource.
        episodes: The episodes.
        change: What can be done about it.
    """

    resource: str
    episodes: float
    change: str


@dataclass(frozen=True, slots=True)
class Tier:
    """The gateways, or the machines that run episodes.

    Attributes:
        name: What they are.
        count: How many are needed.
        ceilings: The ceilings of one, the lowest first.
    """

    name: str
    count: int
    ceilings: tuple[Ceiling, ...]

    @property
    def bottleneck(self) -> Ceiling:
        """The resource that decides how many are needed."""
        return self.ceilings[0]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a demand needs.

    Attributes:
        demand: The demand.
        gateways: The gateways, one process each.
        hosts: The machines that run episodes. With `ray`, gateways run on further machines; otherwise, on these.
        gateway_machines: Further machines for the gateways.
        memory_gb: Memory in all, in GB. Includes the room that ended episodes may come to use.
        cores: CPU seconds a second in all.
        client_sockets: Connections of clients, in all.
        inner_sockets: Connections between gateways and hosts, in all.
        processes: Processes of episodes, in all.
        asks_per_second: How often gateways ask hosts for their load, in all.
    """

    demand: EpisodeDemand
    gateways: Tier
    hosts: Tier
    gateway_machines: int
    memory_gb: float
    cores: float
    client_sockets: int
    inner_sockets: int
    processes: int
    asks_per_second: float

    @property
    def first(self) -> Ceiling:
        """The bottleneck that is met first while the load grows: the lowest ceiling of one gateway or one machine."""
        return min(self.gateways.bottleneck, self.hosts.bottleneck, key=lambda ceiling: ceiling.episodes)


def plan_for(demand: EpisodeDemand, machine: MachineSize, costs: Costs) -> Plan:
    """Work out what a demand needs.

    Raises:
        ConfigurationError: The demand cannot be met with any number of such machines.
    """
    way = _Clustered if demand.runtime == "ray" else _Own
    return way(demand, machine, costs).plan()


def _room_mb(costs: Costs) -> float:
    """Memory of a process that runs episodes, beside that of the process and its open episodes."""
    return costs.store.process_mb + _ENDED * costs.gateway.episode_kb / 1e3


def _connections(demand: EpisodeDemand) -> float:
    # On the channel, a connection carries any number of episodes.
    return 0.0 if demand.surface == "channel" else 1.0


def _tier(name: str, episodes: int, ceilings: Sequence[Ceiling]) -> Tier:
    ordered = tuple(sorted((c for c in ceilings if c.episodes < math.inf), key=lambda ceiling: ceiling.episodes))
    if ordered[0].episodes < 1:
        raise ConfigurationError(
            f"{name}: {ordered[0].resource} is not enough for one episode, however many there are. {ordered[0].change}"
        )
    return Tier(name, math.ceil(episodes / ordered[0].episodes), ordered)


def _per(amount: float, each: float) -> float:
    return amount / each if each > 0 else math.inf


class _Load:
    """The rates of one episode, and the ceilings that both ways have."""

    def __init__(self, demand: EpisodeDemand, machine: MachineSize, costs: Costs):
        self.demand, self.machine, self.costs = demand, machine, costs
        self.calls = 1 / demand.think_seconds
        self.opens = self.calls / demand.calls

    def core_us(self, call_us: float, open_us: float) -> float:
        """CPU microseconds a second of one episode."""
        return self.calls * call_us + self.opens * open_us

    def filling_us(self) -> float:
        """The same in the process that fills the database."""
        return self.core_us(self.costs.store.call_us, self.costs.store.episode_us)

    def filling(self) -> Ceiling:
        return Ceiling(
            "process that fills the database",
            _per(self.machine.busy * 1e6, self.filling_us()),
            "Each gateway or host has one: use more of them. The database itself is not in these figures.",
        )

    def ports(self) -> Ceiling:
        return Ceiling(
            "ports of a proxy",
            _per(self.machine.ports, _connections(self.demand)),
            "Give the proxy or the gateways more addresses, or play over the channel.",
        )

    def forks(self) -> Ceiling:
        return Ceiling(
            "forks of a zygote",
            _per(self.machine.busy * 1e3, self.opens * self.costs.process.open_ms),
            "It forks one episode after another; each gateway and host has one for each environment: use more of them.",
        )


class _Own(_Load):
    """Each gateway runs the episodes that it opened. Gateways share machines."""

    def plan(self) -> Plan:
        demand, costs = self.demand, self.costs
        gateways = _tier("gateways", demand.episodes, self._gateway())
        share = self._base_mb() / gateways.bottleneck.episodes
        machines = _tier("machines", demand.episodes, self._machine(share))
        gateways = replace(gateways, count=max(gateways.count, machines.count))
        return Plan(
            demand=demand,
            gateways=gateways,
            hosts=machines,
            gateway_machines=0,
            memory_gb=(demand.episodes * self._episode_mb() + gateways.count * self._base_mb()) / 1e3,
            cores=demand.episodes * self._all_us() / 1e6,
            client_sockets=max(gateways.count, round(demand.episodes * _connections(demand))),
            inner_sockets=0,
            processes=round(demand.episodes * costs.cluster.processes) if self._process else 0,
            asks_per_second=0.0,
        )

    @property
    def _process(self) -> bool:
        return self.demand.runtime == "process"

    def _loop_us(self) -> float:
        """CPU microseconds a second of one episode in the gateway's event loop."""
        call = self.costs.gateway.call_us[self.demand.surface]
        opening = self.costs.gateway.open_us[self.demand.surface]
        if not self._process:
            return self.core_us(call + 1e3 * self.demand.environment_ms, opening)
        # A host does the same to open an episode, and is asked for it as for a call.
        cluster = self.costs.cluster
        opening += max(0.0, cluster.open_us.host - cluster.call_us.host)
        return self.core_us(call + self.costs.process.gateway_us, opening)

    def _all_us(self) -> float:
        """The same in all processes."""
        return self._loop_us() + self._beside_us() + self.filling_us()

    def _beside_us(self) -> float:
        """The same in the processes of episodes and in the zygote."""
        if not self._process:
            return 0.0
        call = self.costs.process.episode_us + 1e3 * self.demand.environment_ms
        return self.core_us(call, self.costs.cluster.open_us.episode)

    def _episode_mb(self) -> float:
        gateway, demand = self.costs.gateway, self.demand
        table = gateway.session_kb if demand.surface == "sessions" else gateway.episode_kb
        memory = self.costs.process.episode_mb if self._process else table / 1e3
        sessions = (table - gateway.episode_kb) / 1e3 if self._process else 0.0
        connection = _connections(demand) * self.costs.cluster.connection_kb / 1e3
        return memory + sessions + connection + demand.environment_mb

    def _base_mb(self) -> float:
        return self.costs.gateway.gateway_mb + _room_mb(self.costs)

    def _gateway(self) -> list[Ceiling]:
        files = _connections(self.demand) + (self.costs.cluster.descriptors if self._process else 0)
        found = [
            Ceiling(
                "event loop of a gateway",
                _per(self.machine.busy * 1e6, self._loop_us()),
                "Start more gateways, on the same machine while it has cores, and split the clients between them.",
            ),
            Ceiling(
                "open files of a gateway",
                _per(self.machine.descriptors - _OWN_DESCRIPTORS, files),
                "Raise the hard limit (ulimit -Hn): a gateway takes what it may.",
            ),
            self.ports(),
            self.filling(),
        ]
        return [*found, self.forks()] if self._process else found

    def _machine(self, share_mb: float) -> list[Ceiling]:
        machine = self.machine
        found = [
            Ceiling(
                "cores of a machine",
                _per(machine.busy * machine.cores * 1e6, self._all_us()),
                "Take machines with more cores, or more machines.",
            ),
            Ceiling(
                "memory of a machine",
                machine.memory_gb * 1e3 / (self._episode_mb() + share_mb),
                "Take machines with more memory, or more machines; inline, where the environment allows it.",
            ),
        ]
        processes = Ceiling(
            "processes of a machine",
            _per(machine.processes, self.costs.cluster.processes),
            "Raise kernel.pid_max, and pids.max of a container.",
        )
        return [*found, processes] if self._process else found


class _Clustered(_Load):
    """Hosts run the episodes, one on each machine; gateways run on further machines."""

    def plan(self) -> Plan:
        demand, machine, cluster = self.demand, self.machine, self.costs.cluster
        gateways, hosts = self._tiers()
        room = cluster.host_mb + cluster.ray_mb + _room_mb(self.costs)
        together = self._gateway_us() + self._host_us() + self._beside_us() + self.filling_us()
        asks = float(gateways.count * min(hosts.count, _ASKS_A_SECOND))
        memory = demand.episodes * self._episode_mb() + hosts.count * room + gateways.count * cluster.gateway_mb
        memory += demand.episodes * _connections(demand) * cluster.connection_kb / 1e3
        return Plan(
            demand=demand,
            gateways=gateways,
            hosts=hosts,
            gateway_machines=math.ceil(gateways.count / machine.cores),
            memory_gb=memory / 1e3,
            cores=(demand.episodes * together + asks * (self._hop_us() + cluster.call_us.host)) / 1e6,
            client_sockets=max(gateways.count, round(demand.episodes * _connections(demand))),
            inner_sockets=gateways.count * hosts.count,
            processes=round(demand.episodes * cluster.processes),
            asks_per_second=asks,
        )

    def _tiers(self) -> tuple[Tier, Tier]:
        # More hosts cost each gateway more, and the other way round. Both numbers grow until they fit together.
        gateways, hosts = 1, 1
        for _ in range(_ROUNDS):
            tiers = (
                _tier("gateways", self.demand.episodes, self._gateway(hosts)),
                _tier("hosts", self.demand.episodes, self._host(gateways, hosts)),
            )
            if tiers[0].count <= gateways and tiers[1].count <= hosts:
                return replace(tiers[0], count=gateways), replace(tiers[1], count=hosts)
            gateways, hosts = max(gateways, tiers[0].count), max(hosts, tiers[1].count)
        raise ConfigurationError("the numbers of gateways and of hosts do not settle")

    def _hop_us(self) -> float:
        """CPU time of a gateway for asking a host."""
        return max(0.0, self.costs.cluster.call_us.gateway - self.costs.gateway.call_us["http"])

    def _gateway_us(self) -> float:
        call = self._hop_us() + self.costs.gateway.call_us[self.demand.surface]
        return self.core_us(call, self.costs.cluster.open_us.gateway)

    def _host_us(self) -> float:
        return self.core_us(self.costs.cluster.call_us.host, self.costs.cluster.open_us.host)

    def _beside_us(self) -> float:
        cluster = self.costs.cluster
        call = cluster.call_us.episode + cluster.call_us.ray + 1e3 * self.demand.environment_ms
        return self.core_us(call, cluster.open_us.episode + cluster.open_us.ray)

    def _episode_mb(self) -> float:
        return self.costs.cluster.episode_mb + self.demand.environment_mb

    def _gateway(self, hosts: int) -> list[Ceiling]:
        free = self.machine.busy - min(hosts, _ASKS_A_SECOND) * self._hop_us() / 1e6
        return [
            Ceiling(
                "event loop of a gateway",
                max(0.0, free) * 1e6 / self._gateway_us(),
                "Start more gateways. Those that run their episodes themselves need no call of a host.",
            ),
            Ceiling(
                "open files of a gateway",
                _per(self.machine.descriptors - _OWN_DESCRIPTORS - hosts, _connections(self.demand)),
                "Raise the hard limit (ulimit -Hn): a gateway takes what it may.",
            ),
            self.ports(),
        ]

    def _host(self, gateways: int, hosts: int) -> list[Ceiling]:
        machine, cluster = self.machine, self.costs.cluster
        answering = gateways * min(1, _ASKS_A_SECOND / hosts) * cluster.call_us.host / 1e6
        free, whole = machine.busy - answering, machine.busy * machine.cores - answering
        base_mb = cluster.host_mb + cluster.ray_mb + _room_mb(self.costs)
        return [
            Ceiling(
                "event loop of a host",
                max(0.0, free) * 1e6 / self._host_us(),
                "A node has one host, with one event loop: take more and smaller nodes, or gateways without Ray.",
            ),
            Ceiling(
                "cores of a host",
                max(0.0, whole) * 1e6 / (self._host_us() + self._beside_us() + self.filling_us()),
                "Take nodes with more cores, or more nodes.",
            ),
            Ceiling(
                "memory of a host",
                (machine.memory_gb * 1e3 - base_mb) / self._episode_mb(),
                "Take nodes with more memory, or more nodes.",
            ),
            Ceiling(
                "open files of a host",
                _per(machine.descriptors - _OWN_DESCRIPTORS - gateways, cluster.descriptors),
                "Raise the hard limit (ulimit -Hn): a host takes what it may.",
            ),
            Ceiling(
                "processes of a host",
                _per(machine.processes, cluster.processes),
                "Raise kernel.pid_max, and pids.max of a container.",
            ),
            self.forks(),
            self.filling(),
        ]
