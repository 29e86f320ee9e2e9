"""Opens and plays episodes from Python, in this process or through a gateway. For any trainer.

Provisional: what is below this package is going to change, and with it a name may.
"""

from envport_bridges.rollouts.aio import AsyncRollout, AsyncRollouts
from envport_bridges.rollouts.backend import CallReply, RolloutTarget
from envport_bridges.rollouts.sync import Rollout, Rollouts

__all__ = ["AsyncRollout", "AsyncRollouts", "CallReply", "Rollout", "RolloutTarget", "Rollouts"]
