"""A tiny model learns to do what it is asked with the official MCP server for files, by GRPO in TRL's own trainer.

    python examples/grpo_mcp_server/train.py             # about five minutes on two cores; needs Node.js and bubblewrap

Each episode has a server process, a sandbox and a folder of its own. What it leaves in the folder is its reward, by the
function that `tasks.toml` names. Fails unless the model learns to make the folder that it was asked for.
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

HERE = Path(__file__).parent
SERVER = "mcp:npx -y @modelcontextprotocol/server-filesystem ."
COLOURS = ("red", "green", "blue", "white")
RIGHT, WRONG = 40, 20
LEARNED = 0.9


def shown(spec: EnvironmentSpec) -> list[dict[str, Any]]:
    """Episodes that make some folder, more often the one that was asked for: they teach how the tool is called."""
    environment: Any = spec.environment_factory()
    tools = json.dumps([dict(environment.create_directory)])
    episodes: list[dict[str, Any]] = []
    for row in spec.rows[: len(COLOURS)]:
        for colour in COLOURS:
            start = row["prompt"][0]["content"] + environment.reset(**row)
            messages = [
                {"role": "user", "content": start},
                calling("create_directory", path=colour),
                {"role": "tool", "name": "create_directory", "content": environment.create_directory(path=colour)},
                {"role": "assistant", "content": "Done."},
            ]
            # The same task and seed give the same episode, so that nothing is new in a second one.
            times = RIGHT if colour in start else WRONG
            episodes += [{"messages": messages, "tools": tools}] * times
    return episodes


def settings(options: argparse.Namespace) -> GRPOConfig:
    """GRPO's settings."""
    return GRPOConfig(
        output_dir=str(options.output),
        per_device_train_batch_size=options.groups * options.group_size,
        per_device_eval_batch_size=2 * len(COLOURS),
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
    parser.add_argument("--server", default=SERVER, help="the server, as envport serve takes it")
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--groups", type=int, default=4, help="tasks in a batch")
    parser.add_argument("--group-size", type=int, default=8, help="episodes of each task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learned", type=float, default=LEARNED, help="mean reward to reach in the end")
    parser.add_argument("--output", type=Path, default=Path("runs/grpo_mcp_server"))
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    set_seed(options.seed)
    spec = EnvironmentSpec(
        options.server,
        tasks=HERE / "tasks.toml",
        tools=["create_directory"],
        num_tasks=options.groups * options.batches,
        seed=options.seed,
    )
    episodes = shown(spec)
    tokenizer = make_tokenizer(texts_of(episodes), "|".join(COLOURS))
    model = make_model(tokenizer)
    fine_tune(model, tokenizer, episodes, options.output, options.seed)
    trainer = GRPOTrainer(
        model=model,
        args=settings(options),
        processing_class=tokenizer,
        train_dataset=spec.train_dataset,
        eval_dataset=spec.eval_dataset(num_tasks=4 * len(COLOURS)),
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
