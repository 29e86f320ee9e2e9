"""A tiny model learns a game by GRPO, against a running gateway.

    python examples/grpo_catch/train.py                       # three seeds on the CPU, a process for each core
    python examples/grpo_catch/train.py --seeds 0-9           # ten, and a plot of all with their median
    python examples/grpo_catch/train.py --game maze           # find the way out of a maze instead
    python examples/grpo_catch/train.py --url http://127.0.0.1:8000/environments/catch
    python examples/grpo_catch/train.py --kill 0.05           # in processes, of which one in twenty is killed
    python examples/grpo_catch/train.py --model Qwen/Qwen3-1.7B --vllm --learning-rate 1e-6      # on a GPU

Prints the share of games won on held-out seeds before and after, draws the curve, and fails unless nine seeds in ten
reach the game's figure. Says early when a run is not learning.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from curves import Result, report
from datasets import disable_progress_bars
from lessons import LESSONS, Lesson
from progress import Progress
from tiny_policy import load, make_model, make_tokenizer
from transformers import PrinterCallback, set_seed
from trl import GRPOConfig
from warm_up import fine_tune, play, texts_of

from envport_bridges.trl import ConcurrentGRPOTrainer, EnvironmentSpec

LEARN = 0.9


@contextlib.contextmanager
def gateway(lesson: Lesson, kill: float, log: Path) -> Iterator[str]:
    """Run a gateway on a free port.

    Args:
        lesson: The game.
        kill: Share of the episodes whose process is killed in the middle of a move.
        log: File for what it logs.
    """
    reference = f"{lesson.mortal}{kill}" if kill else lesson.reference
    command = [sys.executable, "-m", "envport.cli", "serve", reference, "--port", "0", "--log-level", "warning"]
    # Nobody plays on what is left in the end. Standard input ends with this process, even if it is killed.
    command += ["--drain-seconds", "0", "--end-with-input"]
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
                    yield f"{found[0]}/environments/{lesson.game}"
                    break
            else:
                raise SystemExit(f"the gateway did not start: {log.read_text()}")
        finally:
            process.terminate()


def won(environments: list[Any], log_metric: Any, **columns: Any) -> list[float | None]:
    """1 for a game that was won, 0 for one that was lost, -0.5 for one that was not played to its end."""
    rewards = [environment.score for environment in environments]
    scored = [
        None if reward is None else -0.5 if not environment.finished else float(reward > 0)
        for environment, reward in zip(environments, rewards, strict=True)
    ]
    known = [score for score in scored if score is not None]
    # An episode that was cut short by a fault has no score, and every other one has.
    faults = [environment.outcome is not None and environment.outcome.lost for environment in environments]
    assert faults == [score is None for score in scored]
    log_metric("lost", sum(faults))
    if known:
        log_metric("won", sum(score == 1.0 for score in known) / len(known))
    log_metric("environment_seconds", sum(environment.waited for environment in environments))
    return scored


def settings(lesson: Lesson, options: argparse.Namespace, seed: int, output: Path) -> GRPOConfig:
    """GRPO's settings."""
    on_cpu = not torch.cuda.is_available()
    batch = options.groups * options.group_size
    extra: dict[str, Any] = {"use_vllm": True, "vllm_mode": "colocate"} if options.vllm else {}
    return GRPOConfig(
        output_dir=str(output),
        per_device_train_batch_size=batch if on_cpu else min(batch, 16),
        gradient_accumulation_steps=1 if on_cpu else max(1, batch // 16),
        per_device_eval_batch_size=options.evaluation,
        num_generations=options.group_size,
        num_generations_eval=1,
        max_steps=options.batches * options.iterations,
        learning_rate=options.learning_rate,
        warmup_steps=10,
        lr_scheduler_type="linear",
        num_iterations=options.iterations,
        beta=0.0,
        temperature=1.0,
        max_completion_length=lesson.tokens,
        max_tool_calling_iterations=lesson.turns,
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


def policy(lesson: Lesson, spec: EnvironmentSpec, options: argparse.Namespace, seed: int, output: Path) -> Any:
    """A model and its tokenizer: the one that was asked for, or a tiny one that knows the form of the game."""
    if options.model:
        return load(options.model)
    episodes = play(spec, options.warm_up, seed, lesson.choices, lesson.kept_losses)
    tokenizer = make_tokenizer(texts_of(episodes), lesson.alone)
    model = make_model(tokenizer)
    fine_tune(model, tokenizer, episodes, output, seed)
    if not options.vllm:
        return model, tokenizer
    # vLLM loads a model by its name or folder.
    folder = output / "policy"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load(str(folder))


def learn(url: str, seed: int, options: argparse.Namespace) -> Result:
    """Warm a policy up, train it, and evaluate it before and after."""
    began = time.monotonic()
    logging.basicConfig(level=logging.WARNING)
    disable_progress_bars()
    if not torch.cuda.is_available():
        torch.set_num_threads(1)  # On a model this small, more threads only wait for each other.
    set_seed(seed)
    lesson = LESSONS[options.game]
    output = options.output / f"seed-{seed}"
    spec = EnvironmentSpec(url, split="train", num_tasks=options.groups * options.batches, seed=seed)
    # Seeds that were not trained on, and tasks that were never seen.
    held_out = [
        EnvironmentSpec(url, split=split, num_tasks=options.evaluation, seed=1_000_000 + seed)
        for split in ("train", "test")
    ]
    model, tokenizer = policy(lesson, spec, options, seed, output)
    trainer = ConcurrentGRPOTrainer(
        model=model,
        args=settings(lesson, options, seed, output),
        processing_class=tokenizer,
        train_dataset=spec.train_dataset,
        eval_dataset=held_out[0].train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=[won],
        callbacks=[Progress(f"seed {seed}", options.batches, lesson.after)],
    )
    trainer.remove_callback(PrinterCallback)
    before = [trainer.evaluate(one.train_dataset)["eval_won"] for one in held_out]
    print(f"seed {seed}: wins {before[0]:.2f} untrained, {before[1]:.2f} of tasks never seen", flush=True)
    trainer.train()
    after = [trainer.evaluate(one.train_dataset)["eval_won"] for one in held_out]
    print(f"seed {seed}: wins {after[0]:.2f} trained, {after[1]:.2f} of tasks never seen", flush=True)
    steps = [entry for entry in trainer.state.log_history if "step_time" in entry]
    waited = sum(step.get("environment_seconds", 0.0) for step in steps)
    # Rollouts are made for every few steps only.
    curve = [step["won"] for step in steps if "won" in step]
    return Result(
        seed,
        *(before[0], after[0], before[1], after[1]),
        curve,
        time.monotonic() - began,
        waited / sum(step["step_time"] for step in steps),
        episodes=len(curve) * options.groups * options.group_size,
        lost=round(sum(step.get("lost", 0) for step in steps)),
    )


def learn_all(url: str, options: argparse.Namespace) -> list[Result]:
    """Learn with every seed, in as many processes as asked for."""
    if options.jobs == 1 or len(options.seeds) == 1:
        return [learn(url, seed, options) for seed in options.seeds]
    with ProcessPoolExecutor(
        options.jobs, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        return list(pool.map(learn, *zip(*((url, seed, options) for seed in options.seeds), strict=True)))


def judge(lesson: Lesson, results: list[Result], options: argparse.Namespace) -> None:
    """Make sure that it worked."""
    for result in results:
        assert options.model or result.before < lesson.before, f"seed {result.seed} won {result.before:.2f} untrained"
        assert bool(result.lost) == bool(options.kill), f"seed {result.seed} lost {result.lost} episodes"
    short = [result for result in results if min(result.after, result.unseen_after) < options.threshold]
    print(f"{len(results) - len(short)} of {len(results)} seeds reached {options.threshold:.2f}")
    names = ", ".join(f"{result.seed} ({min(result.after, result.unseen_after):.2f})" for result in short)
    assert len(results) - len(short) >= LEARN * len(results), f"seeds that won too little: {names}"


def seeds_of(text: str) -> list[int]:
    """Read `3`, `0,1,5` or `0-9`."""
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds.extend(range(int(first), int(last or first) + 1))
    return seeds


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", choices=LESSONS, default="catch")
    parser.add_argument("--url", help="the environment on a running gateway; one is started if not given")
    parser.add_argument("--seeds", type=seeds_of, nargs="+", default=[[0, 1, 2]], help="such as 0 1 2, or 0-9")
    parser.add_argument("--jobs", type=int, help="seeds learned at a time; a core for each if not given")
    parser.add_argument("--batches", type=int, help="batches of rollouts; the game's own number if not given")
    parser.add_argument("--groups", type=int, default=8, help="tasks in a batch")
    parser.add_argument("--group-size", type=int, default=8, help="episodes of each task")
    parser.add_argument(
        "--warm-up", type=int, help="episodes to fine-tune on first; the game's own number if not given"
    )
    parser.add_argument("--evaluation", type=int, default=200, help="held-out episodes")
    parser.add_argument("--learning-rate", type=float, help="the game's own if not given")
    parser.add_argument("--iterations", type=int, default=1, help="updates on each batch of rollouts")
    parser.add_argument("--kill", type=float, default=0.0, help="share of the episodes to kill, if no --url is given")
    parser.add_argument("--model", help="a model to train instead of the tiny one, without warm-up")
    parser.add_argument("--vllm", action="store_true", help="generate with vLLM, in the same process")
    parser.add_argument("--output", type=Path, help="folder for the curve; runs/grpo_GAME if not given")
    parser.add_argument("--threshold", type=float, help="share to win in the end; the game's own if not given")
    options = parser.parse_args(arguments)
    lesson = LESSONS[options.game]
    if options.kill and lesson.mortal is None:
        parser.error(f"--kill is for catch; {options.game} has no processes to kill")
    options.seeds = [seed for seeds in options.seeds for seed in seeds]
    # A GPU is for one model at a time.
    options.jobs = options.jobs or (1 if torch.cuda.is_available() else os.cpu_count() or 1)
    options.batches = options.batches or lesson.batches
    options.warm_up = options.warm_up or lesson.warm_up
    if options.learning_rate is None:
        options.learning_rate = lesson.learning_rate
    options.threshold = lesson.after if options.threshold is None else options.threshold
    options.output = options.output or Path(f"runs/grpo_{options.game}")
    return options


def main(arguments: list[str] | None = None) -> list[Result]:
    """Learn with every seed, report, and make sure that it worked."""
    options = parse(arguments)
    lesson = LESSONS[options.game]
    options.output.mkdir(parents=True, exist_ok=True)
    with (
        contextlib.nullcontext(options.url)
        if options.url
        else gateway(lesson, options.kill, options.output / "gateway.log") as url
    ):
        results = learn_all(url, options)
    report(lesson, results, options.output)
    judge(lesson, results, options)
    return results


if __name__ == "__main__":
    main()
