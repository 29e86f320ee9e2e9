"""What a run does when its gateway is away, or has too few places for a batch."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from envport.errors import ConfigurationError, EnvportError
from envport.types import EnvironmentInfo
from envport_bridges.trl.owner import Owner

__all__ = ["LOST_METRIC", "OnOutage", "TooManyLost", "require_places", "stops_at"]

OnOutage: TypeAlias = Literal["stop", "wait", "skip"]
"""What a run does when more than half of the episodes of three batches in a row were lost to faults.

- `stop`: it saves a checkpoint, and `train()` raises `TooManyLost`.
- `wait`: the same. But an episode waits for a gateway that is away or full for as long as that takes, so that an outage
  costs time and the batch that was being played.
- `skip`: it goes on. The lost episodes are left out of training, as always.
"""

LOST_METRIC = "envport/lost_episodes"
"""The metric that says which share of a batch was lost to faults."""


class TooManyLost(EnvportError):
    """Most episodes were lost to faults, batch after batch, so the run was stopped. A checkpoint has been saved."""

    code = "too_many_lost"


def stops_at(on_outage: str) -> bool:
    """Whether a run is stopped when most of its episodes are lost.

    Raises:
        ConfigurationError: There is no such option.
    """
    if on_outage not in get_args(OnOutage):
        raise ConfigurationError(f"on_outage is {on_outage!r}; allowed: {', '.join(map(repr, get_args(OnOutage)))}")
    return on_outage != "skip"


def require_places(info: EnvironmentInfo, owner: Owner) -> None:
    """Check that a gateway has a place for each episode of a batch: all of them are open at once.

    Args:
        info: The environment.
        owner: Who trains on it, alone.

    Raises:
        ConfigurationError: It has too few places.
    """
    places, needed = info.limits.places, owner.episodes_at_once
    if places is not None and needed is not None and places < needed:
        raise ConfigurationError(
            f"a batch plays {needed} episodes of {info.name!r} at once, and its gateway has places for {places}. Make "
            "batches smaller (generation_batch_size; max_inflight_tasks of AsyncGRPOTrainer), or raise the limit: "
            "envport serve --max-episodes, the environment's max_episodes, or the limit for each principal."
        )
