"""A tiny model learns a task of MiniWoB++ in a real browser, by GRPO in TRL's own trainer.

    python examples/browser/train.py             # some minutes on two cores; needs Chromium

Each episode has a browser of its own. The model reads the page's accessibility tree, and clicks the text field that the
goal names, by its id. Fails unless it learns to.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, set_seed
from trl import GRPOConfig, GRPOTrainer

from envport_bridges.trl import EnvironmentSpec

sys.path.insert(0, str(Path(__file__).parents[1] / "grpo_catch"))

from tiny_policy import make_model, make_tokenizer
from warm_up import calling, fine_tune, texts_of

TASK = "browsergym:miniwob.focus-text-2"
FIELDS = ("12", "13", "14")
RIGHT, WRONG = 80, 20
LEARNED = 0.9


def shown(spec: EnvironmentSpec) -> list[dict[str, Any]]:
    """Episodes that click some field, more often the right one: they teach how the tool is called."""
    environment: Any = spec.environment_factory()
    tools = json.dumps([dict(environment.click)])
    episodes: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in spec.rows:
        if len(episodes) == len(FIELDS) ** 2:
            break
        for field in FIELDS:
            start = row["prompt"][0]["content"] + environment.reset(**row)
            if (start, field) in episodes:
                break
            messages = [
                {"role": "user", "content": start},
                calling("click", bid=field),
                {"role": "tool", "name": "click", "content": environment.click(bid=field)},
                {"role": "assistant", "content": "Done."},
            ]
            times = RIGHT if environment.reward > 0 else WRONG
            episodes[start, field] = [{"messages": messages, "tools": tools}] * times
    return [episode for repeated in episodes.values() for episode in repeated]


def settings(options: argparse.Namespace) -> GRPOConfig:
    """GRPO's settings."""
    return GRPOConfig(
        output_dir=str(options.output),
        per_device_train_batch_size=options.groups * options.group_size,
        per_device_eval_batch_size=options.groups * options.group_size,
        num_generations=options.group_size,
        num_generations_eval=1,
        max_steps=options.batches,
        learning_rate=4e-4,
        warmup_steps=2,
        beta=0.0,
        temperature=1.0,
        max_completion_length=96,
        max_tool_calling_iterations=2,
        chat_template_kwargs={"sanitize_control_tokens": True},
        seed=options.seed,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
        disable_tqdm=True,
        log_level="warning",
    )


def main(arguments: list[str] | None = None) -> list[float]:
    """Learn; returns the mean reward before and after."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", default=TASK)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--groups", type=int, default=4, help="pages in a batch")
    parser.add_argument("--group-size", type=int, default=6, help="episodes of each page")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learned", type=float, default=LEARNED, help="mean reward to reach in the end")
    parser.add_argument("--output", type=Path, default=Path("runs/browser"))
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    set_seed(options.seed)
    spec = EnvironmentSpec(
        options.environment, tools=["click"], max_steps=1, num_tasks=options.groups * options.batches, seed=options.seed
    )
    episodes = shown(spec)
    tokenizer = make_tokenizer(texts_of(episodes), "|".join((*FIELDS, "1st", "2nd", "3rd")))
    model = make_model(tokenizer)
    fine_tune(model, tokenizer, episodes, options.output, options.seed)
    trainer = GRPOTrainer(
        model=model,
        args=settings(options),
        processing_class=tokenizer,
        train_dataset=spec.train_dataset,
        eval_dataset=spec.eval_dataset(num_tasks=options.groups * options.group_size),
        environment_factory=spec.environment_factory,
        reward_funcs=spec.reward_funcs,
    )
    trainer.remove_callback(PrinterCallback)
    before = float(trainer.evaluate()["eval_reward"])
    trainer.train()
    after = float(trainer.evaluate()["eval_reward"])
    curve = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    print("reward by batch:", " ".join(f"{reward:.2f}" for reward in curve))
    print(f"mean reward {before:.2f} before, {after:.2f} after {options.batches} batches", flush=True)
    assert after >= options.learned, f"it reached {after:.2f}, and {options.learned:.2f} was to be reached"
    return [before, after]


if __name__ == "__main__":
    main()
