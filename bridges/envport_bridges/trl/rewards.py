"""The default reward function: the reward that the environment gave."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from envport.errors import ConfigurationError

from envport_bridges.trl.rollout_environment import RolloutEnvironment

__all__ = ["LOST_METRIC", "episode_reward"]

logger = logging.getLogger(__name__)

LOST_METRIC = "envport/lost_episodes"
"""The metric that says which share of a batch was lost to faults."""


def episode_reward(
    environments: Sequence[RolloutEnvironment] | None = None,
    log_metric: Callable[[str, float], None] | None = None,
    **columns: Any,
) -> list[float | None]:
    """The reward of each episode: sum or last of its steps' rewards, as the environment says.

    An episode in which no step had a reward counts 0. An episode that was lost to a fault counts `None`: TRL leaves it
    out of the advantages.

    Args:
        environments: The environment instances of the batch, from TRL.
        log_metric: TRL's logger of scalars.
        **columns: What else TRL passes.

    Raises:
        ConfigurationError: TRL passed no environments.
    """
    if environments is None and "tool_calls" in columns and "episode_reward" in columns:
        return _of_rollouts(columns, log_metric)
    if environments is None:
        raise ConfigurationError(
            "this trainer passes no environments to reward functions (AsyncGRPOTrainer does not): "
            "use spec.async_environment_factory, whose environments own their reward, and no reward_funcs"
        )
    rewards = [environment.score for environment in environments]
    note_lost(rewards, log_metric)
    return rewards


def _of_rollouts(columns: dict[str, Any], log_metric: Callable[[str, float], None] | None) -> list[float | None]:
    """The rewards that a `rollout_func` found, with the metrics that TRL logs only for its own loop."""
    rewards = list(columns["episode_reward"])
    calls, failures = sum(columns["tool_calls"]), sum(columns["tool_failures"])
    if log_metric is not None:
        log_metric("tools/call_frequency", calls / max(1, len(rewards)))
        log_metric("tools/failure_frequency", failures / max(1, calls))
    note_lost(rewards, log_metric)
    return rewards


def note_lost(rewards: Sequence[float | None], log_metric: Callable[[str, float], None] | None) -> None:
    """Log how many episodes were lost."""
    lost = sum(reward is None for reward in rewards)
    if log_metric is not None:
        log_metric(LOST_METRIC, lost / max(1, len(rewards)))
    if lost:
        logger.error("%d of %d episodes were lost to faults and are left out of training", lost, len(rewards))
