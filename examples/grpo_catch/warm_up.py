"""Teaches a policy the form of the game: supervised fine-tuning on episodes that random moves played."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from lessons import CATCH
from tiny_policy import TEMPLATES
from transformers import PrinterCallback
from transformers.utils.chat_template_utils import render_jinja_template
from trl import SFTConfig, SFTTrainer

from envport.errors import EpisodeFailed
from envport_bridges.trl import EnvironmentSpec

Choices = Callable[[str], Sequence[str]]


def play(
    spec: EnvironmentSpec,
    episodes: int,
    seed: int,
    choices: Choices = CATCH.choices,
    kept_losses: float = CATCH.kept_losses,
) -> list[dict[str, Any]]:
    """Play episodes with random moves, and keep those that are worth learning from, judged by their own reward.

    Args:
        spec: The environment.
        episodes: How many to keep.
        seed: Seed of the moves.
        choices: The moves to choose from, by the latest observation.
        kept_losses: Share of the lost episodes to keep.

    Returns:
        The episodes as chat messages, with the tools as the gateway lists them.
    """
    rng = random.Random(seed)
    environment: Any = spec.environment_factory()
    tools = json.dumps([dict(environment.move)])
    kept: list[dict[str, Any]] = []
    while len(kept) < episodes:
        try:
            messages = play_one(environment, rng.choice(spec.rows), rng, choices)
        except EpisodeFailed:
            # Cut short by a fault: it shows nothing.
            continue
        if environment.reward > 0 or rng.random() < kept_losses:
            kept.append({"messages": messages, "tools": tools})
    return kept


def play_one(environment: Any, row: dict[str, Any], rng: random.Random, choices: Choices) -> list[dict[str, Any]]:
    """Play one episode with random moves; returns its chat messages."""
    observation = environment.reset(**row)
    messages = [{"role": "user", "content": row["prompt"][0]["content"] + observation}]
    while not environment.finished:
        direction = rng.choice(choices(observation))
        observation = environment.move(direction=direction)
        messages.append(calling("move", direction=direction))
        messages.append({"role": "tool", "name": "move", "content": observation})
    messages.append({"role": "assistant", "content": "Done."})
    return messages


def calling(tool: str, **arguments: Any) -> dict[str, Any]:
    """An assistant's turn that calls a tool."""
    # As text: a dataset gives every row the keys of all, and the model would learn to write the others' too.
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


def texts_of(episodes: list[dict[str, Any]]) -> list[str]:
    """The episodes as they stand in a prompt."""
    template = (TEMPLATES / "qwen3_instruct_2507.jinja").read_text()
    return [
        render_jinja_template([episode["messages"]], tools=json.loads(episode["tools"]), chat_template=template)[0][0]
        for episode in episodes
    ]


def fine_tune(model: Any, tokenizer: Any, episodes: list[dict[str, Any]], output: Path, seed: int) -> None:
    """Fine-tune on the episodes: on what the environment says too, not on the assistant's turns only."""
    args = SFTConfig(
        output_dir=str(output / "warm_up"),
        num_train_epochs=4,
        per_device_train_batch_size=8,
        learning_rate=2e-3,
        lr_scheduler_type="cosine",
        # Random moves follow from nothing, so the assistant's turns alone do not teach a policy to read. What the
        # environment says next follows from what it said before.
        assistant_only_loss=False,
        max_length=None,
        seed=seed,
        logging_steps=50,
        save_strategy="no",
        report_to="none",
        use_cpu=model.device.type == "cpu",
        bf16=model.device.type != "cpu",
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    trainer = SFTTrainer(model=model, args=args, processing_class=tokenizer, train_dataset=Dataset.from_list(episodes))
    trainer.remove_callback(PrinterCallback)
    trainer.train()
