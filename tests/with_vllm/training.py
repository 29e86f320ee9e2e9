"""A few steps of GRPO with vLLM, and what they show of its weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import GRPOConfig

from envport_bridges.trl import ConcurrentGRPOTrainer, EnvironmentSpec

GAME = "catch?rows=5&columns=5&render=words"
STEPS = 3
WAYS = ("environment_factory", "rollout_func", "agent")
PLAYER = Path(__file__).parents[1] / "support" / "small_player.py"


def train(policy: Path, way: str, output: Path, **vllm: Any) -> list[dict[str, Any]]:
    """Train as a user does; returns what was logged of each step.

    Args:
        policy: Folder of the model.
        way: How the trainer is given the environment, one of `WAYS`.
        output: Folder for what the trainer writes.
        vllm: Options of `GRPOConfig` that say where vLLM runs.
    """
    set_seed(0)
    spec = EnvironmentSpec(GAME, split="train", num_tasks=2 * STEPS)
    given: dict[str, Any] = {"train_dataset": spec.rollout_dataset, "rollout_func": spec.rollout_func}
    if way == "agent":
        given["rollout_func"] = spec.agent_rollout_func(f"{{python}} {PLAYER} plain", sandbox=False)
    elif way == "environment_factory":
        given = {"train_dataset": spec.train_dataset, "environment_factory": spec.environment_factory}
    trainer = ConcurrentGRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(policy),
        args=settings(output, **vllm),
        processing_class=AutoTokenizer.from_pretrained(policy),
        reward_funcs=spec.reward_funcs,
        **given,
    )
    trainer.train()
    return [entry for entry in trainer.state.log_history if "grad_norm" in entry]


def settings(output: Path, **vllm: Any) -> GRPOConfig:
    """GRPO's settings: large steps, so that old weights are told from new ones."""
    return GRPOConfig(
        output_dir=str(output),
        per_device_train_batch_size=16,
        num_generations=8,
        max_steps=STEPS,
        learning_rate=5e-4,
        lr_scheduler_type="constant",
        beta=0.0,
        max_completion_length=256,
        max_tool_calling_iterations=6,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        use_vllm=True,
        **vllm,
    )


def logp_differences(history: Sequence[dict[str, Any]]) -> list[float]:
    """How far vLLM's log probabilities were from the trainer's in each step, the first of which changed the weights."""
    assert len(history) == STEPS
    for entry in history:
        assert entry["envport/lost_episodes"] == 0
        assert math.isfinite(entry["loss"])
    assert history[0]["tools/call_frequency"] > 1
    assert history[0]["grad_norm"] > 0, "the first step changed no weights, so that the others show nothing"
    return [entry["sampling/sampling_logp_difference/mean"] for entry in history]
