"""One model learns two environments at once, in this process: Catch on a small board, and what to say to Echo.

    python examples/grpo_several/train.py                # about two minutes on the CPU

Echo has no reward of its own: a function of ours prefers one colour to the others. Each row's prompt shows the tools of
its own environment only. Fails unless both are learned.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import set_seed
from trl import GRPOConfig

from envport_bridges.trl import ConcurrentGRPOTrainer, EnvironmentSpec, combine

sys.path.insert(0, str(Path(__file__).parents[1] / "grpo_catch"))

from tiny_policy import ALONE, make_model, make_tokenizer
from warm_up import calling, fine_tune, play, texts_of

COLOURS = ("red", "green", "blue", "white")
WANTED = "green"
GROUPS, GROUP_SIZE = 8, 8


def talk(spec: EnvironmentSpec, episodes: int, seed: int) -> list[dict[str, Any]]:
    """Say random colours to Echo, to teach the model how a tool is called."""
    rng = random.Random(seed)
    environment: Any = spec.environment_factory()
    tools = json.dumps([dict(environment.echo)])
    kept: list[dict[str, Any]] = []
    for _ in range(episodes):
        row = rng.choice(spec.rows)
        start = row["prompt"][0]["content"] + environment.reset(**row)
        message = " ".join(rng.choices(COLOURS, k=3))
        messages = [
            {"role": "user", "content": start},
            calling("echo", message=message),
            {"role": "tool", "name": "echo", "content": environment.echo(message=message)},
            {"role": "assistant", "content": "Done."},
        ]
        kept.append({"messages": messages, "tools": tools})
    return kept


def catches(environments: list[Any], environment: list[str], **columns: Any) -> list[float | None]:
    """1 for a ball that was caught; says nothing of Echo."""
    return [
        None if name != "catch" or one.score is None else float(one.finished and one.score > 0)
        for one, name in zip(environments, environment, strict=True)
    ]


def colours(environments: list[Any], environment: list[str], **columns: Any) -> list[float | None]:
    """The share of the wanted colour in what Echo said back; says nothing of Catch."""
    rewards: list[float | None] = []
    for one, name in zip(environments, environment, strict=True):
        words = str(one.last_output).split() if one.steps else []
        rewards.append(words.count(WANTED) / max(3, len(words)) if name == "echo" else None)
    return rewards


def settings(options: argparse.Namespace) -> GRPOConfig:
    """GRPO's settings."""
    return GRPOConfig(
        output_dir=str(options.output),
        per_device_train_batch_size=GROUPS * GROUP_SIZE,
        num_generations=GROUP_SIZE,
        num_iterations=4,
        max_steps=4 * options.batches,
        learning_rate=1e-3,
        warmup_steps=5,
        beta=0.0,
        temperature=1.0,
        max_completion_length=160,
        chat_template_kwargs={"sanitize_control_tokens": True},
        max_tool_calling_iterations=4,
        seed=options.seed,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )


def main(arguments: list[str] | None = None) -> dict[str, tuple[float, float]]:
    """Learn, report, and make sure that both were learned."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--warm-up", type=int, default=300, help="episodes of each environment to fine-tune on first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("runs/grpo_several"))
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    torch.set_num_threads(1)
    set_seed(options.seed)
    rows = GROUPS * options.batches // 2
    catch = EnvironmentSpec("catch?rows=3&columns=3", num_tasks=rows, seed=options.seed)
    echo = EnvironmentSpec("echo", num_tasks=rows, seed=options.seed)
    episodes = play(catch, options.warm_up, options.seed) + talk(echo, options.warm_up, options.seed)
    random.Random(options.seed).shuffle(episodes)
    tokenizer = make_tokenizer(texts_of(episodes), "|".join((r"\n", ALONE, *COLOURS)))
    model = make_model(tokenizer)
    fine_tune(model, tokenizer, episodes, options.output, options.seed)
    both = combine({"catch": catch, "echo": echo})
    trainer = ConcurrentGRPOTrainer(
        model=model,
        args=settings(options),
        processing_class=tokenizer,
        train_dataset=both.train_dataset,
        environment_factory=both.environment_factory,
        reward_funcs=[catches, colours],
    )
    trainer.train()
    learned: dict[str, tuple[float, float]] = {}
    for name in ("catches", "colours"):
        key = f"rewards/{name}/mean"
        curve = [entry[key] for entry in trainer.state.log_history if entry.get(key) is not None]
        quarter = max(1, len(curve) // 4)
        learned[name] = (sum(curve[:quarter]) / quarter, sum(curve[-quarter:]) / quarter)
        print(f"{name}: {learned[name][0]:.2f} -> {learned[name][1]:.2f}; " + " ".join(f"{r:.2f}" for r in curve))
    for name, (before, after) in learned.items():
        assert after > before + 0.15, f"{name} went from {before:.2f} to {after:.2f}"
    return learned


if __name__ == "__main__":
    main()
