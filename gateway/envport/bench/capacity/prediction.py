"""What two hosts should do, from what one does. The example of the cluster compares that with a measurement."""

from __future__ import annotations

from dataclasses import dataclass

from envport.bench.capacity.costs import ClusterCosts

__all__ = ["Prediction", "predict"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a cluster should do under load.

    Attributes:
        call_us: CPU time of a call in all processes of the cluster, idle costs included, in microseconds.
        calls_per_second: Calls a second.
        limit: What keeps it from more: `gateways`, `hosts`, `cores` or `callers`.
    """

    call_us: float
    calls_per_second: float
    limit: str


def predict(costs: ClusterCosts, hosts: int, cores: float, callers_us: float) -> Prediction:
    """Predict a cluster whose nodes share one machine, with as many gateways as hosts.

    The cost of a call is taken from one host with as many concurrent calls as each of these hosts has: with more calls
    at a time, an event loop has less to do for each. Each gateway and each host has one event loop, so it uses one core
    at most. So does the process with the callers. The idle costs of gateways and hosts grow with their number.

    Args:
        costs: The costs with one host; `call_us` with as many calls at a time as each host has now.
        hosts: Number of hosts, and of gateways.
        cores: Cores that the cluster and its callers have together.
        callers_us: CPU time of a call in the process of the callers, in microseconds.
    """
    idle = hosts * (costs.idle_cores.gateway + costs.idle_cores.host) + costs.idle_cores.ray
    loops = hosts * 1e6
    rates = {
        "gateways": (loops - hosts * costs.idle_cores.gateway * 1e6) / costs.call_us.gateway,
        "hosts": (loops - hosts * costs.idle_cores.host * 1e6) / costs.call_us.host,
        "cores": (cores - idle) * 1e6 / (costs.call_us.total + callers_us),
        "callers": 1e6 / callers_us,
    }
    limit = min(rates, key=rates.__getitem__)
    return Prediction(costs.call_us.total + idle * 1e6 / rates[limit], rates[limit], limit)
