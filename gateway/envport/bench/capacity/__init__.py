"""Capacity planning: from the measured costs to the gateways, hosts, memory and sockets for many episodes."""

from envport.bench.capacity.costs import ClusterCosts, Costs, GatewayCosts, ProcessCosts, RoleCosts, StoreCosts
from envport.bench.capacity.demand import EpisodeDemand, MachineSize
from envport.bench.capacity.plan import Ceiling, Plan, Tier, plan_for
from envport.bench.capacity.prediction import Prediction, predict

__all__ = [
    "Ceiling",
    "ClusterCosts",
    "Costs",
    "EpisodeDemand",
    "GatewayCosts",
    "MachineSize",
    "Plan",
    "Prediction",
    "ProcessCosts",
    "RoleCosts",
    "StoreCosts",
    "Tier",
    "plan_for",
    "predict",
]
