"""Play, export, fine-tune, train, evaluate: one environment, one gateway, the same tools all the way.

    python examples/loop/run.py                     # some minutes on one CPU core
    python examples/loop/run.py --output runs/loop  # where everything is kept

A scripted expert plays catch through MCP. The gateway records its episodes, `envport episodes export` writes them as
chat messages with the tools, SFTTrainer fine-tunes a tiny model on them, GRPO trains it on the same environment, and
three evaluations are compared. Fails unless each step helps.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from datasets import disable_progress_bars
from expert import play
from picture import draw
from transformers import PrinterCallback, set_seed
from transformers.utils.chat_template_utils import render_jinja_template
from trl import GRPOConfig, SFTConfig, SFTTrainer

from envport import Client
from envport_bridges.export import load_export
from envport_bridges.trl import ConcurrentGRPOTrainer, EnvironmentSpec

# The tiny model and its tokenizer are those of another example.
sys.path.append(str(Path(__file__).parents[1] / "grpo_catch"))

from tiny_policy import TEMPLATES, make_model, make_tokenizer

ENVIRONMENT = "catch"
REFERENCE = "catch=catch?rows=5&columns=5&render=words"
REWARD = "rewards/episode_reward/mean"
STAGES = ("before", "fine-tuned", "trained")


@contextlib.contextmanager
def gateway(store: Path, log: Path) -> Iterator[str]:
    """Run a gateway that records its episodes, on a free port.

    Args:
        store: Folder for the episodes.
        log: File for what it logs.
    """
    command = [sys.executable, "-m", "envport.cli", "serve", REFERENCE, "--port", "0", "--log-level", "warning"]
    # Standard input ends with this process, even if it is killed.
    command += ["--store", str(store), "--drain-seconds", "0", "--end-with-input"]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environ
        ) as process,
    ):
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"http://[\w.:]+", line):
                    yield found[0]
                    break
            else:
                raise SystemExit(f"the gateway did not start: {log.read_text()}")
        finally:
            process.terminate()


def episodes(*words: str, store: Path) -> str:
    """Run `envport episodes`, and return what it prints."""
    command = [sys.executable, "-m", "envport.cli", "episodes", *words, "--store", str(store)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def rewards_by_run(store: Path) -> dict[str, list[float]]:
    """The rewards of the episodes that have ended, by their label `run`."""
    found: dict[str, list[float]] = defaultdict(list)
    for episode in json.loads(episodes("list", "--json", "--limit", "100000", "--ended", store=store)):
        # Whoever calls no tool earns nothing; GRPO counts that as 0.
        found[episode["labels"]["run"]].append(episode["reward"] or 0.0)
    return found


def policy(rows: Any, seed: int) -> tuple[Any, Any]:
    """A model with random weights, and a tokenizer that was made for these conversations."""
    set_seed(seed)
    template = (TEMPLATES / "qwen3_instruct_2507.jinja").read_text()
    texts = [render_jinja_template([row["messages"]], tools=row["tools"], chat_template=template)[0][0] for row in rows]
    tokenizer = make_tokenizer(texts)
    return make_model(tokenizer), tokenizer


def common(output: Path, seed: int) -> dict[str, Any]:
    """Settings of both trainers."""
    return {
        "output_dir": str(output),
        "seed": seed,
        "logging_steps": 10,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "log_level": "warning",
    }


def fine_tune(model: Any, tokenizer: Any, rows: Any, options: argparse.Namespace) -> None:
    """Supervised fine-tuning on the exported episodes: on what the expert did, not on what the environment said."""
    args = SFTConfig(
        num_train_epochs=options.epochs,
        per_device_train_batch_size=8,
        learning_rate=options.sft_learning_rate,
        lr_scheduler_type="cosine",
        assistant_only_loss=True,
        max_length=None,
        **common(options.output / "sft", options.seed),
    )
    trainer = SFTTrainer(model=model, args=args, processing_class=tokenizer, train_dataset=rows)
    trainer.remove_callback(PrinterCallback)
    trainer.train()


def grpo(model: Any, tokenizer: Any, spec: EnvironmentSpec, options: argparse.Namespace) -> Any:
    """A trainer that plays the environment of a specification."""
    args = GRPOConfig(
        per_device_train_batch_size=8 * options.groups,
        per_device_eval_batch_size=options.evaluation,
        num_generations=8,
        num_generations_eval=1,
        max_steps=options.batches,
        learning_rate=options.learning_rate,
        warmup_steps=min(10, options.batches // 2),
        lr_scheduler_type="linear",
        beta=0.0,
        temperature=1.0,
        max_completion_length=256,
        max_tool_calling_iterations=6,
        **{**common(options.output / "grpo", options.seed), "logging_steps": 1},
    )
    trainer = ConcurrentGRPOTrainer(
        model=model,
        args=args,
        processing_class=tokenizer,
        train_dataset=spec.train_dataset,
        eval_dataset=spec.train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=spec.reward_funcs,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def specification(url: str, run: str, split: str, rows: int, seed: int) -> EnvironmentSpec:
    """Episodes with the label `run`, by which the store finds them."""
    return EnvironmentSpec(
        f"{url}/environments/{ENVIRONMENT}", split=split, num_tasks=rows, seed=seed, labels={"run": run}
    )


def evaluate(model: Any, tokenizer: Any, url: str, stage: str, options: argparse.Namespace) -> float:
    """Mean reward in starts that nobody has seen: neither the expert's episodes nor the training hold them."""
    spec = specification(url, f"evaluated-{stage}", "test", options.evaluation, 1_000_000 + options.seed)
    reward = grpo(model, tokenizer, spec, options).evaluate()[f"eval_{REWARD}"]
    print(f"{stage}: mean reward {reward:.3f} in {options.evaluation} episodes", flush=True)
    return reward


def loop(url: str, store: Path, options: argparse.Namespace) -> tuple[dict[str, float], list[float]]:
    """Go once around.

    Returns:
        The mean reward of each stage, and that of each batch of the training.
    """
    with Client(url) as client:
        listed = client.environment(ENVIRONMENT).tools
    asyncio.run(play(url, ENVIRONMENT, options.demonstrations, options.seed, options.slips))
    # A gateway writes to its database within a second.
    while len(rewards_by_run(store)["expert"]) < options.demonstrations:
        time.sleep(0.1)
    file = options.output / "expert.parquet"
    chosen = ("--environment", ENVIRONMENT, "--label", "run=expert", "--min-reward", "1")
    print(episodes("export", str(file), *chosen, store=store), end="", flush=True)
    rows = load_export(file)
    # The tools that are fine-tuned on are those that MCP lists.
    assert [tool["function"]["parameters"] for tool in rows[0]["tools"]] == [tool["inputSchema"] for tool in listed]
    model, tokenizer = policy(rows, options.seed)
    rewards = {"before": evaluate(model, tokenizer, url, "before", options)}
    fine_tune(model, tokenizer, rows, options)
    rewards["fine-tuned"] = evaluate(model, tokenizer, url, "fine-tuned", options)
    spec = specification(url, "grpo", "train", options.groups * options.batches, options.seed)
    trainer = grpo(model, tokenizer, spec, options)
    trainer.train()
    curve = [entry[REWARD] for entry in trainer.state.log_history if REWARD in entry]
    rewards["trained"] = evaluate(model, tokenizer, url, "trained", options)
    return rewards, curve


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demonstrations", type=int, default=150, help="episodes that the expert plays")
    parser.add_argument("--slips", type=float, default=0.3, help="share of its moves in which the expert slips")
    parser.add_argument("--epochs", type=float, default=3, help="of fine-tuning")
    parser.add_argument("--sft-learning-rate", type=float, default=2e-3)
    parser.add_argument("--batches", type=int, default=40, help="of GRPO")
    parser.add_argument("--groups", type=int, default=8, help="tasks in a batch, each played eight times")
    parser.add_argument("--learning-rate", type=float, default=3e-4, help="of GRPO")
    parser.add_argument("--evaluation", type=int, default=200, help="episodes of each evaluation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gain", type=float, default=0.1, help="fails unless each stage earns this much more")
    parser.add_argument("--output", type=Path, default=Path("runs/loop"))
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Go once around, draw the rewards, and make sure that each stage helped."""
    options = parse(arguments)
    logging.basicConfig(level=logging.WARNING)
    disable_progress_bars()
    torch.set_num_threads(1)  # On a model this small, more threads only wait for each other.
    began = time.monotonic()
    options.output.mkdir(parents=True, exist_ok=True)
    store = options.output / "episodes"
    with gateway(store, options.output / "gateway.log") as url:
        rewards, curve = loop(url, store, options)
    recorded = rewards_by_run(store)
    for stage in STAGES:
        assert abs(fmean(recorded[f"evaluated-{stage}"]) - rewards[stage]) < 1e-6, stage
    draw(rewards, curve, options.output / "rewards.png")
    print(f"{time.monotonic() - began:.0f} s; {options.output / 'rewards.png'}", flush=True)
    for stage, following in pairwise(STAGES):
        gain = rewards[following] - rewards[stage]
        assert gain >= options.gain, f"{following} earns {rewards[following]:.3f}, {stage} {rewards[stage]:.3f}"
    return rewards


if __name__ == "__main__":
    main()
