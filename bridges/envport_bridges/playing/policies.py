"""Moved to `envport_bridges.evaluation.players.policies`. This module keeps the import path of policies."""

from envport_bridges.evaluation.players.policies import Policy, PolicyCall, View, load_policy, no_op, random_calls

__all__ = ["Policy", "PolicyCall", "View", "load_policy", "no_op", "random_calls"]
