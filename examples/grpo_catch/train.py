"""A tiny model learns Catch by GRPO, against a running gateway.

    python examples/grpo_catch/train.py                       # three seeds on the CPU, about five minutes each
    python examples/grpo_catch/train.py --url http://127.0.0.1:8000/environments/catch
    python examples/grpo_catch/train.py --kill 0.05           # in processes, of which one in twenty is killed
    python examples/grpo_catch/train.py --model Qwen/Qwen3-1.7B --vllm --learning-rate 1e-6      # on a GPU

Prints the share of balls caught on held-out seeds before and after, draws the curve, and fails if nothing was learned.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tiny_policy import load, make_model, make_tokenizer
from transformers import set_seed
from trl import GRPOConfig
from warm_up import fine_tune, play, texts_of

from envport_bridges.trl import ConcurrentGRPOTrainer, EnvironmentSpec

CATCH = "catch=catch?rows=5&columns=5&render=words"
MORTAL = f"catch={Path(__file__).with_name('mortal.py')}:MortalCatch?mortality="
GROUPS, GROUP_SIZE = 8, 8
BEFORE, AFTER = 0.4, 0.95


@dataclass
class Result:
    """What one seed showed."""

    seed: int
    before: float
    after: float
    unseen_before: float
    unseen_after: float
    curve: list[float] = field(default_factory=list)
    seconds: float = 0.0
    environment_share: float = 0.0
    episodes: int = 0
    lost: int = 0


@contextlib.contextmanager
def gateway(kill: float, log: Path) -> Iterator[str]:
    """Run a gateway on a free port.

    Args:
        kill: Share of the episodes whose process is killed in the middle of a move.
        log: File for what it logs.
    """
    reference = f"{MORTAL}{kill}" if kill else CATCH
    command = [sys.executable, "-m", "envport.cli", "serve", reference, "--port", "0", "--log-level", "warning"]
    # Nobody plays on what is left in the end.
    command += ["--drain-seconds", "0"]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environ) as process,
    ):
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"http://[\w.:]+", line):
                    yield f"{found[0]}/environments/catch"
                    break
            else:
                raise SystemExit(f"the gateway did not start: {log.read_text()}")
        finally:
            process.terminate()


def caught(environments: list[Any], log_metric: Any, **columns: Any) -> list[float | None]:
    """1 for a ball that was caught, 0 for one that was missed, -0.5 for a game that was not played to its end."""
    rewards = [environment.score for environment in environments]
    scored = [
        None if reward is None else -0.5 if not environment.finished else float(reward > 0)
        for environment, reward in zip(environments, rewards, strict=True)
    ]
    known = [score for score in scored if score is not None]
    # An episode that was cut short by a fault has no score, and every other one has.
    faults = [environment.outcome is not None and environment.outcome.infrastructure for environment in environments]
    assert faults == [score is None for score in scored]
    log_metric("lost", sum(faults))
    if known:
        log_metric("caught", sum(score == 1.0 for score in known) / len(known))
    log_metric("environment_seconds", sum(environment.waited for environment in environments))
    return scored


def settings(options: argparse.Namespace, seed: int, output: Path) -> GRPOConfig:
    """GRPO's settings."""
    on_cpu = not torch.cuda.is_available()
    batch = GROUPS * GROUP_SIZE
    extra: dict[str, Any] = {"use_vllm": True, "vllm_mode": "colocate"} if options.vllm else {}
    return GRPOConfig(
        output_dir=str(output),
        per_device_train_batch_size=batch if on_cpu else 16,
        gradient_accumulation_steps=1 if on_cpu else batch // 16,
        per_device_eval_batch_size=options.evaluation,
        num_generations=GROUP_SIZE,
        num_generations_eval=1,
        max_steps=options.batches * options.iterations,
        learning_rate=options.learning_rate,
        warmup_steps=10,
        lr_scheduler_type="linear",
        num_iterations=options.iterations,
        beta=0.0,
        temperature=1.0,
        max_completion_length=options.max_completion_length,
        max_tool_calling_iterations=6,
        chat_template_kwargs={"sanitize_control_tokens": True},
        seed=seed,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=on_cpu,
        bf16=not on_cpu,
        gradient_checkpointing=not on_cpu,
        disable_tqdm=True,
        log_level="warning",
        **extra,
    )


def learn(url: str, seed: int, options: argparse.Namespace, output: Path) -> Result:
    """Warm a policy up, train it, and evaluate it before and after."""
    began = time.monotonic()
    set_seed(seed)
    spec = EnvironmentSpec(url, split="train", num_tasks=GROUPS * options.batches, seed=seed)
    # Seeds that were not trained on, and starts that were never seen.
    held_out = [
        EnvironmentSpec(url, split=split, num_tasks=options.evaluation, seed=1_000_000 + seed)
        for split in ("train", "test")
    ]
    if options.model:
        model, tokenizer = load(options.model)
    else:
        episodes = play(spec, options.warm_up, seed)
        tokenizer = make_tokenizer(texts_of(episodes))
        model = make_model(tokenizer)
        fine_tune(model, tokenizer, episodes, output, seed)
    trainer = ConcurrentGRPOTrainer(
        model=model,
        args=settings(options, seed, output),
        processing_class=tokenizer,
        train_dataset=spec.train_dataset,
        eval_dataset=held_out[0].train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=[caught],
    )
    before = [trainer.evaluate(one.train_dataset)["eval_caught"] for one in held_out]
    trainer.train()
    after = [trainer.evaluate(one.train_dataset)["eval_caught"] for one in held_out]
    steps = [entry for entry in trainer.state.log_history if "step_time" in entry]
    waited = sum(step.get("environment_seconds", 0.0) for step in steps)
    share = waited / sum(step["step_time"] for step in steps)
    # Rollouts are made for every few steps only.
    curve = [step["caught"] for step in steps if "caught" in step]
    return Result(
        seed,
        *(before[0], after[0], before[1], after[1]),
        curve,
        time.monotonic() - began,
        share,
        episodes=len(curve) * GROUPS * GROUP_SIZE,
        lost=round(sum(step.get("lost", 0) for step in steps)),
    )


def report(results: list[Result], output: Path) -> None:
    """Print the curves and draw them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for result in results:
        tenth = max(1, len(result.curve) // 10)
        means = [
            sum(part) / len(part) for part in (result.curve[i : i + tenth] for i in range(0, len(result.curve), tenth))
        ]
        print(
            f"seed {result.seed}: caught {result.before:.2f} -> {result.after:.2f} on held-out seeds "
            f"({result.unseen_before:.2f} -> {result.unseen_after:.2f} on starts never seen), "
            f"{result.seconds:.0f} s, environment {result.environment_share:.1%} of a step's time; by tenths: "
            + " ".join(f"{mean:.2f}" for mean in means)
        )
        if result.lost:
            print(f"        {result.lost} of {result.episodes} episodes were lost to faults: none of them was scored")
        axes.plot(range(1, len(result.curve) + 1), result.curve, alpha=0.8, label=f"seed {result.seed}")
    axes.set(
        xlabel="batch of 64 rollouts",
        ylabel="balls caught in training",
        ylim=(0, 1.02),
        title="Catch, learned through the gateway",
    )
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(output / "curve.png", dpi=120)
    (output / "curve.json").write_text(json.dumps([vars(result) for result in results]))
    print(f"curve: {output / 'curve.png'}")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="the environment on a running gateway; one is started if not given")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--batches", type=int, default=100, help="batches of rollouts")
    parser.add_argument("--warm-up", type=int, default=1000, help="episodes to fine-tune on first")
    parser.add_argument("--evaluation", type=int, default=200, help="held-out episodes")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--iterations", type=int, default=1, help="updates on each batch of rollouts")
    parser.add_argument("--max-completion-length", type=int, default=256)
    parser.add_argument("--kill", type=float, default=0.0, help="share of the episodes to kill, if no --url is given")
    parser.add_argument("--model", help="a model to train instead of the tiny one, without warm-up")
    parser.add_argument("--vllm", action="store_true", help="generate with vLLM, in the same process")
    parser.add_argument("--output", type=Path, default=Path("runs/grpo_catch"))
    parser.add_argument("--threshold", type=float, default=AFTER, help="what has to be caught in the end")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> list[Result]:
    """Learn with every seed, report, and make sure that it worked."""
    options = parse(arguments)
    logging.basicConfig(level=logging.WARNING)
    if not torch.cuda.is_available():
        torch.set_num_threads(1)  # On a model this small, more threads only wait for each other.
    options.output.mkdir(parents=True, exist_ok=True)
    with (
        contextlib.nullcontext(options.url)
        if options.url
        else gateway(options.kill, options.output / "gateway.log") as url
    ):
        results = [learn(url, seed, options, options.output) for seed in options.seeds]
    report(results, options.output)
    for result in results:
        after = min(result.after, result.unseen_after)
        assert after >= options.threshold, f"seed {result.seed} caught only {after:.2f}"
        assert options.model or result.before < BEFORE, f"seed {result.seed} caught {result.before:.2f} untrained"
        assert bool(result.lost) == bool(options.kill), f"seed {result.seed} lost {result.lost} episodes"
    return results


if __name__ == "__main__":
    main()
