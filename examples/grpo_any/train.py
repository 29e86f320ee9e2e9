"""Train any model on any environment, or on several: TRL's OpenEnv examples, done with a gateway.

    envport serve wordle catch                                           # in another terminal
    python examples/grpo_any/train.py http://127.0.0.1:8000/environments/wordle --model Qwen/Qwen3-1.7B --vllm
    python examples/grpo_any/train.py wordle catch --model Qwen/Qwen3-1.7B     # both, in this process

Fails if episodes were lost to faults, if no tool was called, or if the reward ends below --expect.
"""

from __future__ import annotations

import argparse
import logging
import re
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig

from envport_bridges.trl import ConcurrentGRPOTrainer, EnvironmentSpec, combine


def name_of(target: str) -> str:
    """A short name for an environment."""
    return re.split(r"[?]", target.rstrip("/").rsplit("/", 1)[-1])[0]


def specs_of(options: argparse.Namespace) -> Any:
    """One environment as it is, or several combined."""
    rows = options.steps * options.groups
    share = -(-rows // len(options.environments))
    specs = {
        name_of(target): EnvironmentSpec(target, num_tasks=share, seed=options.seed) for target in options.environments
    }
    return next(iter(specs.values())) if len(specs) == 1 else combine(specs)


def settings(options: argparse.Namespace) -> GRPOConfig:
    """GRPO's settings."""
    on_cpu = not torch.cuda.is_available()
    extra: dict[str, Any] = {"use_vllm": True, "vllm_mode": options.vllm_mode} if options.vllm else {}
    return GRPOConfig(
        output_dir=str(options.output),
        per_device_train_batch_size=options.group_size,
        gradient_accumulation_steps=options.groups,
        num_generations=options.group_size,
        max_steps=options.steps,
        learning_rate=options.learning_rate,
        beta=0.0,
        max_completion_length=options.max_completion_length,
        chat_template_kwargs={"sanitize_control_tokens": True},
        max_tool_calling_iterations=options.max_calls,
        seed=options.seed,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=on_cpu,
        bf16=not on_cpu,
        gradient_checkpointing=not on_cpu,
        disable_tqdm=True,
        **extra,
    )


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environments", nargs="+", metavar="ENVIRONMENT", help="URL on a gateway, or what it serves")
    parser.add_argument("--model", required=True, help="name on the hub, or a folder")
    parser.add_argument("--vllm", action="store_true", help="generate with vLLM")
    parser.add_argument("--vllm-mode", choices=["colocate", "server"], default="colocate")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=1e-6)
    parser.add_argument("--max-completion-length", type=int, default=2048)
    parser.add_argument("--max-calls", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--expect", type=float, help="mean reward that the last tenth of the steps has to reach")
    parser.add_argument("--allow-silence", action="store_true", help="do not fail if the model never calls a tool")
    parser.add_argument("--output", type=Path, default=Path("runs/grpo_any"))
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> list[float]:
    """Train, report, and make sure that the environments were played."""
    options = parse(arguments)
    logging.basicConfig(level=logging.WARNING)
    spec = specs_of(options)
    trainer = ConcurrentGRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(options.model),
        args=settings(options),
        processing_class=AutoTokenizer.from_pretrained(options.model),
        train_dataset=spec.train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=spec.reward_funcs,
    )
    trainer.train()
    history = [entry for entry in trainer.state.log_history if entry.get("reward") is not None]
    curve = [entry["reward"] for entry in history]
    tenth = max(1, len(curve) // 10)
    print("reward by tenths: " + " ".join(f"{sum(part) / len(part):.3f}" for part in parts_of(curve, tenth)))
    assert len(curve) == options.steps, "some steps gave no reward"
    assert not any(entry["envport/lost_episodes"] for entry in history), "episodes were lost to faults"
    assert options.allow_silence or any(entry["tools/call_frequency"] for entry in history), "no tool was called"
    last = sum(curve[-tenth:]) / tenth
    assert options.expect is None or last >= options.expect, f"the reward reached only {last:.3f}"
    return curve


def parts_of(curve: list[float], length: int) -> list[list[float]]:
    """The curve in parts of a length."""
    return [curve[start : start + length] for start in range(0, len(curve), length)]


if __name__ == "__main__":
    main()
