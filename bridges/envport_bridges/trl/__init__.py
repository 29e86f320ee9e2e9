"""Training with TRL: environments as datasets, factories and rewards for `GRPOTrainer` and `AsyncGRPOTrainer`.

Example:
    from envport_bridges.trl import EnvironmentSpec

    spec = EnvironmentSpec("http://127.0.0.1:8000/environments/catch", split="train", num_tasks=256)
    trainer = GRPOTrainer(model=..., args=..., train_dataset=spec.train_dataset,
                          environment_factory=spec.environment_factory, reward_funcs=spec.reward_funcs)
"""

from typing import TYPE_CHECKING, Any

from envport_bridges.trl.combination import Combination, combine
from envport_bridges.trl.contract import trl_version
from envport_bridges.trl.rewards import episode_reward
from envport_bridges.trl.spec import EnvironmentSpec

if TYPE_CHECKING:
    from envport_bridges.trl.agent_trainer import AgentGRPOTrainer
    from envport_bridges.trl.trainer import ConcurrentGRPOTrainer, ConcurrentRollouts

__all__ = [
    "AgentGRPOTrainer",
    "Combination",
    "ConcurrentGRPOTrainer",
    "ConcurrentRollouts",
    "EnvironmentSpec",
    "combine",
    "episode_reward",
]

trl_version()


def __getattr__(name: str) -> Any:
    # TRL's trainer takes seconds to import, and a rollout worker does without.
    if name in ("ConcurrentGRPOTrainer", "ConcurrentRollouts"):
        from envport_bridges.trl import trainer

        return getattr(trainer, name)
    if name == "AgentGRPOTrainer":
        from envport_bridges.trl import agent_trainer

        return agent_trainer.AgentGRPOTrainer
    raise AttributeError(name)
