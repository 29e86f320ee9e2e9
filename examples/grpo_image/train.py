"""A tiny vision model learns by GRPO to name the colour of a lamp, which only the picture tells.

    python examples/grpo_image/train.py             # on one CPU core, five to ten minutes

The first observation of every episode is an image, and the trainer is TRL's own. Trains twice from the same weights:
with the pictures, and as a control with one dark picture for all episodes. Fails unless the first run learns and the
control stays at chance.
"""

from __future__ import annotations

import argparse
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lamp import COLOURS
from random_answers import fine_tune, play, texts_of
from tiny_vision import VISION_TOKENS, ImageProcessor, make_model, make_processor
from transformers import TrainerCallback, set_seed
from trl import GRPOConfig, GRPOTrainer

from envport_bridges.trl import EnvironmentSpec

LAMP = f"{Path(__file__).with_name('lamp.py')}:Lamp"
DARK = f"{LAMP}?dark=true"
GROUPS, GROUP_SIZE, ITERATIONS = 16, 4, 4
CHANCE = 1 / len(COLOURS)
NEAR_CHANCE, LEARNED = CHANCE + 0.15, 0.9
REWARD = "rewards/episode_reward/mean"


class VisionGradient(TrainerCallback):
    """Notes how large the gradient of the vision tower is, before each step of the optimizer.

    Attributes:
        norms: One norm for each step.
    """

    def __init__(self) -> None:
        self.norms: list[float] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        """Called by the trainer."""
        parts = [weights.grad.norm() for weights in model.model.visual.parameters() if weights.grad is not None]
        self.norms.append(float(torch.stack(parts).norm()) if parts else 0.0)


@dataclass
class Result:
    """What one run showed: shares of right answers, and the gradient of the vision tower at the first step."""

    before: float
    after: float
    curve: list[float]
    gradient: float
    seconds: float


def settings(options: argparse.Namespace, seed: int, never: list[int]) -> GRPOConfig:
    """GRPO's settings.

    Args:
        options: The options of the command line.
        seed: Seed of the run.
        never: Tokens that the model may not write.
    """
    return GRPOConfig(
        output_dir=str(options.output),
        per_device_train_batch_size=GROUPS * GROUP_SIZE,
        per_device_eval_batch_size=options.evaluation,
        num_generations=GROUP_SIZE,
        num_generations_eval=1,
        num_iterations=ITERATIONS,
        max_steps=ITERATIONS * options.batches,
        learning_rate=options.learning_rate,
        warmup_steps=10,
        # Keeps it trying every colour: without, it may settle on those that it found first.
        beta=0.05,
        temperature=1.0,
        max_completion_length=48,
        max_tool_calling_iterations=2,
        generation_kwargs={"suppress_tokens": never},
        seed=seed,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        log_level="warning",
    )


def warm_up(seed: int, options: argparse.Namespace) -> tuple[str, ImageProcessor]:
    """Make a model that knows how to answer and has never seen a picture; returns its folder, and the processor."""
    set_seed(seed)
    rows = play(EnvironmentSpec(DARK, num_tasks=options.warm_up, seed=seed), options.warm_up, seed)
    processor = make_processor(texts_of(rows), rf"\b(?:{'|'.join(COLOURS)})\b")
    model = make_model(processor.tokenizer)
    fine_tune(model, processor, rows, options.output, seed)
    # A folder, as TRL also loads the reference model from it.
    folder = str(options.output / "warmed_up")
    model.save_pretrained(folder)
    return folder, processor


def make_trainer(
    target: str, model: str, processor: ImageProcessor, seed: int, options: argparse.Namespace
) -> GRPOTrainer:
    """Make TRL's trainer for an environment, evaluated on pictures that it is not trained on."""
    spec = EnvironmentSpec(target, num_tasks=GROUPS * options.batches, seed=seed)
    held_out = EnvironmentSpec(target, num_tasks=options.evaluation, seed=1_000_000 + seed)
    # A refused argument stands in the tool's answer, and the processor would look for the picture or video.
    never = processor.tokenizer.convert_tokens_to_ids(VISION_TOKENS)
    return GRPOTrainer(
        model=model,
        args=settings(options, seed, never),
        processing_class=processor,
        train_dataset=spec.train_dataset,
        eval_dataset=held_out.train_dataset,
        environment_factory=spec.environment_factory,
        reward_funcs=spec.reward_funcs,
    )


def learn(target: str, model: str, processor: ImageProcessor, seed: int, options: argparse.Namespace) -> Result:
    """Train, and evaluate before and after."""
    began = time.monotonic()
    set_seed(seed)
    trainer = make_trainer(target, model, processor, seed, options)
    gradient = VisionGradient()
    trainer.add_callback(gradient)
    before = trainer.evaluate()[f"eval_{REWARD}"]
    trainer.train()
    after = trainer.evaluate()[f"eval_{REWARD}"]
    # Rollouts are made for every few steps only.
    curve = [entry[REWARD] for entry in trainer.state.log_history if REWARD in entry]
    return Result(before, after, curve, gradient.norms[0], time.monotonic() - began)


def report(name: str, seed: int, result: Result) -> None:
    """Print what came of a run."""
    tenth = max(1, len(result.curve) // 10)
    parts = [result.curve[start : start + tenth] for start in range(0, len(result.curve), tenth)]
    print(
        f"{name}, seed {seed}: right {result.before:.2f} -> {result.after:.2f} on held-out episodes (chance "
        f"{CHANCE:.2f}), {result.seconds:.0f} s; first gradient of the vision tower {result.gradient:.1e}; by tenths: "
        + " ".join(f"{sum(part) / len(part):.2f}" for part in parts),
        flush=True,
    )


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--batches", type=int, default=60, help="batches of rollouts")
    parser.add_argument("--warm-up", type=int, default=400, help="episodes to fine-tune on first")
    parser.add_argument("--evaluation", type=int, default=200, help="held-out episodes")
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--output", type=Path, default=Path("runs/grpo_image"))
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Learn with and without pictures, report, and make sure that the pictures made the difference."""
    options = parse(arguments)
    logging.basicConfig(level=logging.WARNING)
    torch.set_num_threads(1)  # On a model this small, more threads only wait for each other.
    for seed in options.seeds:
        model, processor = warm_up(seed, options)
        seen = learn(LAMP, model, processor, seed, options)
        report("pictures", seed, seen)
        dark = learn(DARK, model, processor, seed, options)
        report("control", seed, dark)
        assert seen.before < NEAR_CHANCE, f"{seen.before:.2f} were right before GRPO; chance is {CHANCE}"
        assert seen.after >= LEARNED, f"only {seen.after:.2f} were right after GRPO"
        # The first step's: the policy is still the reference, so that nothing but the reward gives a gradient.
        assert seen.gradient > 0, "the pictures gave the vision tower no gradient"
        assert dark.after < NEAR_CHANCE, f"{dark.after:.2f} were right without a picture; chance is {CHANCE}"


if __name__ == "__main__":
    main()
