"""With a TRL whose internals have other names, episodes are played in turn, or the run stops in words."""

from __future__ import annotations

import importlib.util
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from test_trl_training import guess_up_to, logged, train
from trl import GRPOTrainer
from trl.trainer import grpo_trainer

from envport.errors import ConfigurationError
from envport_bridges.trl import ConcurrentRollouts, EnvironmentSpec

IN_TURN = (
    "_environment_pool",
    "_multi_environment",
    "max_completion_length",
    "_tool_call_loop",
    "_get_tool_suffix_ids",
)
"""What only playing side by side leans on."""

DEGRADED = ("_is_vlm", "_log_metric", "chat_template")
"""What a check or a figure leans on."""

STOPPED = ("_calculate_rewards", "_generate", "environment_factories", "environments", "reward_func_names")
"""What the promise leans on that a lost episode is never trained on."""

QUICK = ("_environment_pool", "_log_metric", "_calculate_rewards", "environment_factories")


def renamed(name: str) -> type[Any]:
    """TRL's `GRPOTrainer` with another name for one of its internals."""
    source = Path(str(grpo_trainer.__file__)).read_text()
    changed, count = re.subn(rf"(\bself\.|\bdef ){name}\b", rf"\1{name}_renamed", source)
    assert count, name
    spec = importlib.util.spec_from_loader(f"trl.trainer.without_{name}", None, origin=grpo_trainer.__file__)
    assert spec is not None
    module: Any = importlib.util.module_from_spec(spec)
    # Its classes are looked up here by what inspects them.
    sys.modules[spec.name] = module
    exec(compile(changed, str(grpo_trainer.__file__), "exec"), module.__dict__)
    return module.GRPOTrainer


def cases(names: tuple[str, ...]) -> list[Any]:
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


def run(tmp_path: Path, name: str) -> Any:
    changed = type("Changed", (ConcurrentRollouts, renamed(name)), {})
    return train(tmp_path, EnvironmentSpec("mirror:Guess", indices=[1, 4]), guess_up_to(3), changed)


@pytest.mark.parametrize("name", cases(IN_TURN))
def test_episodes_are_played_in_turn(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "envport_bridges")
    trainer = run(tmp_path, name)
    assert "episodes are played one after another" in caplog.text
    assert logged(trainer, "rewards/episode_reward/mean") == [pytest.approx((0.75 - 0.75) / 2)]
    assert logged(trainer, "tools/call_frequency") == [2.5]


@pytest.mark.parametrize("name", cases(DEGRADED))
def test_what_is_not_checked_or_told_is_said(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "envport_bridges")
    trainer = run(tmp_path, name)
    assert f"its trainer has no {name!r}" in caplog.text or f"has no attribute {name!r}" in caplog.text
    assert logged(trainer, "rewards/episode_reward/mean") == [pytest.approx((0.75 - 0.75) / 2)]


@pytest.mark.parametrize("name", cases(STOPPED))
def test_a_run_that_could_train_on_lost_episodes_is_stopped(name: str, tmp_path: Path):
    with pytest.raises(ConfigurationError, match="out of training"):
        run(tmp_path, name)


def test_the_same_trainer_under_its_own_names_plays_side_by_side(tmp_path: Path):
    plain = type("Plain", (ConcurrentRollouts, GRPOTrainer), {})
    trainer = train(tmp_path, EnvironmentSpec("mirror:Guess", indices=[1, 4]), guess_up_to(3), plain)
    assert trainer._side_by_side
