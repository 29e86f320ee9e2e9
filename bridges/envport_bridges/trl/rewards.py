"""The default reward function: the reward that the environment gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envport.errors import ConfigurationError
from envport_bridges.trl.rollout_environment import RolloutEnvironment, finish_all

__all__ = ["episode_reward"]


def episode_reward(
    environments: Sequence[RolloutEnvironment] | None = None,
    episode_reward: Sequence[float | None] | None = None,
    **columns: Any,
) -> list[float | None]:
    """The reward of each episode: sum or last of its steps' rewards, as the environment says.

    An episode in which no step had a reward counts 0. An episode that was lost to a fault counts `None`.

    Args:
        environments: The environment instances of the batch, from TRL.
        episode_reward: The rewards that a `rollout_func` found, where it played the episodes.
        **columns: What else TRL passes.

    Raises:
        ConfigurationError: TRL passed neither.
    """
    if environments is not None:
        finish_all(environments)
        return [environment.score for environment in environments]
    if episode_reward is not None:
        return list(episode_reward)
    raise ConfigurationError(
        "this trainer passes no environments to reward functions (AsyncGRPOTrainer does not): "
        "use spec.async_environment_factory, whose environments own their reward, and no reward_funcs"
    )
