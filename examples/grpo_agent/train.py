"""An agent that knows nothing of envport learns a game by GRPO, and is then evaluated as it was trained.

    python examples/grpo_agent/train.py                   # one seed
    python examples/grpo_agent/train.py --seeds 0-9       # ten, and a plot of all with their median
    python examples/grpo_agent/train.py --agent pydantic_agent.py       # an agent of a framework, not changed either

`agent.py` has a loop and a prompt of its own, a model behind OpenAI's API and an environment behind MCP. GRPOTrainer
trains the model while the agent plays. Then `envport eval` has the same command play with the saved model.

Prints the share of games caught on held-out seeds before and after, draws the curve, and fails unless nine seeds in ten
learn the game, or if the evaluation finds another figure than the training did.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from datasets import disable_progress_bars
from transformers import PrinterCallback, set_seed
from trl import GRPOConfig, GRPOTrainer

from envport_bridges.evaluation.intervals import Estimate, share_of
from envport_bridges.trl import EnvironmentSpec

# The game, the tiny model and its warm-up are those of another example.
sys.path.append(str(Path(__file__).parents[1] / "grpo_catch"))

from curves import Result, report
from lessons import CATCH
from progress import Progress
from tiny_policy import make_model, make_tokenizer
from warm_up import fine_tune, play, texts_of

HERE = Path(__file__).parent
REFERENCE = CATCH.reference.partition("=")[2]
LEARN = 0.9


def caught(
    episode_reward: list[float | None], episode_finished: list[bool], log_metric: Any, **columns: Any
) -> list[float | None]:
    """1 for a ball that was caught, 0 for one that was missed, -0.5 for an episode that was not played to its end."""
    scored = [
        None if reward is None else -0.5 if not finished else float(reward > 0)
        for reward, finished in zip(episode_reward, episode_finished, strict=True)
    ]
    known = [score for score in scored if score is not None]
    log_metric("lost", len(scored) - len(known))
    if known:
        log_metric("won", sum(score == 1.0 for score in known) / len(known))
    return scored


def settings(options: argparse.Namespace, seed: int, output: Path) -> GRPOConfig:
    """GRPO's settings."""
    return GRPOConfig(
        output_dir=str(output),
        per_device_train_batch_size=options.groups * options.group_size,
        per_device_eval_batch_size=options.evaluation,
        gradient_accumulation_steps=1,
        num_generations=options.group_size,
        num_generations_eval=1,
        max_steps=options.batches,
        learning_rate=options.learning_rate,
        warmup_steps=5,
        lr_scheduler_type="linear",
        beta=0.0,
        temperature=1.0,
        max_completion_length=CATCH.tokens,
        chat_template_kwargs={"sanitize_control_tokens": True},
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


def spec_of(options: argparse.Namespace, seed: int) -> EnvironmentSpec:
    """The episodes to train on."""
    return EnvironmentSpec(REFERENCE, split="train", num_tasks=options.groups * options.batches, seed=seed)


def policy(spec: EnvironmentSpec, seed: int, options: argparse.Namespace, output: Path) -> tuple[Any, Any]:
    """A tiny model that knows the form of the game, and its tokenizer."""
    episodes = play(spec, options.warm_up, seed)
    tokenizer = make_tokenizer(texts_of(episodes), CATCH.alone)
    model = make_model(tokenizer)
    fine_tune(model, tokenizer, episodes, output, seed)
    return model, tokenizer


def learn(seed: int, options: argparse.Namespace) -> Result:
    """Warm a policy up, train it by the agent's episodes, and evaluate the agent before and after."""
    began = time.monotonic()
    logging.basicConfig(level=logging.WARNING)
    disable_progress_bars()
    torch.set_num_threads(1)  # On a model this small, more threads only wait for each other.
    set_seed(seed)
    output = options.output / f"seed-{seed}"
    spec = spec_of(options, seed)
    # Seeds that were not trained on, and tasks that were never seen.
    held_out = [
        EnvironmentSpec(REFERENCE, split=split, num_tasks=options.evaluation, seed=1_000_000 + seed).rollout_dataset
        for split in ("train", "test")
    ]
    model, tokenizer = policy(spec, seed, options, output)
    trainer = GRPOTrainer(
        model=model,
        args=settings(options, seed, output),
        processing_class=tokenizer,
        train_dataset=spec.rollout_dataset,
        eval_dataset=held_out[0],
        rollout_func=spec.agent_rollout_func(
            f"{{python}} {HERE / options.agent} --resident", at_once=options.at_once, deadline=60, resident=True
        ),
        reward_funcs=[caught],
        callbacks=[Progress(f"seed {seed}", options.batches, CATCH.after)],
    )
    trainer.remove_callback(PrinterCallback)
    before = [trainer.evaluate(dataset)["eval_won"] for dataset in held_out]
    print(f"seed {seed}: catches {before[0]:.2f} untrained, {before[1]:.2f} of tasks never seen", flush=True)
    trainer.train()
    after = [trainer.evaluate(dataset)["eval_won"] for dataset in held_out]
    print(f"seed {seed}: catches {after[0]:.2f} trained, {after[1]:.2f} of tasks never seen", flush=True)
    trainer.save_model(str(output / "policy"))
    tokenizer.save_pretrained(output / "policy")
    steps = [entry for entry in trainer.state.log_history if "step_time" in entry]
    curve = [step["won"] for step in steps]
    return Result(
        seed,
        *(before[0], after[0], before[1], after[1]),
        curve,
        time.monotonic() - began,
        episodes=len(curve) * options.groups * options.group_size,
        lost=round(sum(step["lost"] for step in steps)),
    )


def learn_all(options: argparse.Namespace) -> list[Result]:
    """Learn with every seed, in as many processes as asked for."""
    if len(options.seeds) == 1:
        return [learn(options.seeds[0], options)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=spawn, max_tasks_per_child=1) as pool:
        return list(pool.map(learn, options.seeds, [options] * len(options.seeds)))


def evaluate(seed: int, options: argparse.Namespace) -> Estimate:
    """Have `envport eval` play the same agent with the saved policy: the share of balls that it catches.

    Each episode has a process of its own here, as an agent that is used has.
    """
    output = options.output / f"seed-{seed}"
    command = [sys.executable, "-m", "envport.cli", "eval", REFERENCE, "--split", "test", "--json"]
    command += ["--agent", f"{{python}} {HERE / options.agent}", "--agent-model", str(output / "policy")]
    command += ["-M", f"max_tokens={CATCH.tokens}", "--log-dir", str(output / "logs")]
    command += ["--num-tasks", str(options.episodes), "--seed", str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    (result,) = json.loads(done.stdout)
    return Estimate(**result["success"])


def compare(result: Result, found: Estimate, options: argparse.Namespace) -> None:
    """Make sure that the evaluation found what the training did: their 95% intervals meet."""
    caught_in_training = round(result.unseen_after * options.evaluation)
    values = [[1.0]] * caught_in_training + [[0.0]] * (options.evaluation - caught_in_training)
    trained = share_of(values, [str(place) for place in range(options.evaluation)])
    print(
        f"seed {result.seed}: `envport eval` of the same agent: {_text(found)} of {options.episodes} balls never seen; "
        f"in training: {_text(trained)} of {options.evaluation}"
    )
    apart = max(found.low - trained.high, trained.low - found.high)
    assert apart <= 0, "the evaluation finds another figure"


def _text(share: Estimate) -> str:
    return f"{share.mean:.2f} [{share.low:.2f}, {share.high:.2f}]"


def judge(results: list[Result], options: argparse.Namespace) -> None:
    """Make sure that it worked."""
    short = [result for result in results if min(result.after, result.unseen_after) < options.threshold]
    print(f"{len(results) - len(short)} of {len(results)} seeds reached {options.threshold:.2f}")
    names = ", ".join(f"{result.seed} ({min(result.after, result.unseen_after):.2f})" for result in short)
    assert len(results) - len(short) >= LEARN * len(results), f"seeds that caught too little: {names}"


def seeds_of(text: str) -> list[int]:
    """Read `3` or `0-9`."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="agent.py", help="file of the agent, in this folder")
    parser.add_argument("--seeds", type=seeds_of, default=[0], help="such as 3, or 0-9")
    parser.add_argument("--jobs", type=int, default=2, help="seeds learned at a time")
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--groups", type=int, default=8, help="tasks in a batch")
    parser.add_argument("--group-size", type=int, default=8, help="episodes of each task")
    parser.add_argument("--at-once", type=int, default=8, help="agents that play at once")
    parser.add_argument("--warm-up", type=int, default=CATCH.warm_up, help="episodes to fine-tune on first")
    parser.add_argument("--evaluation", type=int, default=100, help="held-out episodes")
    parser.add_argument("--episodes", type=int, default=50, help="episodes of `envport eval`; 0 for none")
    parser.add_argument("--learning-rate", type=float, default=CATCH.learning_rate)
    parser.add_argument("--threshold", type=float, default=CATCH.after, help="share to catch in the end")
    parser.add_argument("--output", type=Path, default=Path("runs/grpo_agent"), help="folder for curve and policies")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> list[Result]:
    """Learn with every seed, report, make sure that it worked, and evaluate the agent of the first seed."""
    options = parse(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    results = learn_all(options)
    report(CATCH, results, options.output)
    if options.episodes:
        compare(results[0], evaluate(results[0].seed, options), options)
    judge(results, options)
    return results


if __name__ == "__main__":
    main()
