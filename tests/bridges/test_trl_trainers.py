"""TRL's other trainers that take environments; the README has the table."""

from __future__ import annotations

import inspect
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from test_trl_rollout import train as train_by_rollout_func
from test_trl_training import DONE, logged, train
from tiny_model import Script, calls
from trl import DistillationTrainer, RLOOTrainer
from trl.experimental.async_distillation import AsyncDistillationTrainer
from trl.experimental.gmpo import GMPOConfig, GMPOTrainer

from envport_bridges.trl import ConcurrentRollouts, EnvironmentSpec

EXAMPLES = Path(__file__).parents[2] / "examples"

GMPO = {"config_class": GMPOConfig}


class ConcurrentGMPOTrainer(ConcurrentRollouts, GMPOTrainer):
    """GMPO, with rollouts played side by side."""


def uneven() -> Script:
    """Every second rollout guesses; the others stop at once. So the members of a group have different rewards."""
    rollouts = count()
    return lambda text, turn: calls(("guess", '{"number": 1}')) if turn == 0 and next(rollouts) % 2 else DONE


def check(trainer: Any) -> None:
    # Task 1 is found, task 4 is not; half of the rollouts try.
    assert logged(trainer, "tools/call_frequency") == [0.5]
    assert logged(trainer, "rewards/episode_reward/mean")[0] > 0
    assert logged(trainer, "envport/lost_episodes") == [0.0]
    assert logged(trainer, "grad_norm")[0] > 0


@pytest.mark.parametrize("trainer_class", [GMPOTrainer, ConcurrentGMPOTrainer])
def test_gmpo_trains_on_environments(trainer_class: type[Any], tmp_path: Path):
    trainer = train(tmp_path, EnvironmentSpec("mirror:Guess", indices=[1, 4]), uneven(), trainer_class, **GMPO)
    check(trainer)
    assert getattr(trainer, "_side_by_side", False) == (trainer_class is ConcurrentGMPOTrainer)


def test_gmpo_trains_by_rollout_func(tmp_path: Path):
    spec = EnvironmentSpec("mirror:Guess", indices=[1, 4])
    check(train_by_rollout_func(tmp_path, spec, uneven(), GMPOTrainer, **GMPO))


@pytest.mark.parametrize("trainer_class", [RLOOTrainer, DistillationTrainer, AsyncDistillationTrainer])
def test_the_other_trainers_take_no_environments(trainer_class: type[Any]):
    """If one does, the table of the README has to say so, and a test has to train with it."""
    assert not {"environment_factory", "rollout_func"} & inspect.signature(trainer_class.__init__).parameters.keys()


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("grpo_*/train.py")), ids=lambda path: path.parent.name)
def test_examples_keep_control_tokens_out_of_what_environments_show(example: Path):
    # With pictures, TRL 1.16 and transformers 5.23 refuse the option.
    assert ('chat_template_kwargs={"sanitize_control_tokens": True}' in example.read_text()) == (
        example.parent.name != "grpo_image"
    )
