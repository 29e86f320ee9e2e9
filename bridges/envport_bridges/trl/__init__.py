"""Training with TRL: environments as datasets, factories and rewards for `GRPOTrainer` and `AsyncGRPOTrainer`.

    from envport_bridges.trl import EnvironmentSpec

    spec = EnvironmentSpec("http://127.0.0.1:8000/environments/catch", split="train", num_tasks=256)
    trainer = GRPOTrainer(model=..., args=..., train_dataset=spec.train_dataset,
                          environment_factory=spec.environment_factory, reward_funcs=spec.reward_funcs)
"""

from envport_bridges.trl.contract import trl_version

trl_version()

from envport_bridges.trl.rewards import episode_reward  # noqa: E402
from envport_bridges.trl.spec import Combination, EnvironmentSpec, combine  # noqa: E402

__all__ = ["Combination", "EnvironmentSpec", "combine", "episode_reward"]
