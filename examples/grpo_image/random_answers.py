"""Teaches a policy the form of a call: supervised fine-tuning on answers that were drawn at random."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

from datasets import Dataset
from tiny_vision import TEMPLATE, VISION_TOKENS
from transformers.utils.chat_template_utils import render_jinja_template
from trl import SFTConfig, SFTTrainer

from envport_bridges.trl import EnvironmentSpec

CONTROL = re.compile("|".join(map(re.escape, ("<|im_start|>", "<|im_end|>", *VISION_TOKENS))) + "|</?tool_[a-z]+>")


def play(spec: EnvironmentSpec, episodes: int, seed: int) -> list[dict[str, Any]]:
    """Play episodes with random answers, right or wrong, and keep all of them.

    Args:
        spec: The environment.
        episodes: How many.
        seed: Seed of the answers.

    Returns:
        Rows for `SFTTrainer`, two for each episode, as only what the model wrote is to be learned: `prompt` and
        `completion` as text, and `images`.
    """
    rng = random.Random(seed)
    environment: Any = spec.environment_factory()
    tools = [dict(environment.answer)]
    colours = tools[0]["function"]["parameters"]["properties"]["colour"]["enum"]
    rows: list[dict[str, Any]] = []
    for _ in range(episodes):
        row = rng.choice(spec.rows)
        shown = environment.reset(**row)
        arguments = {"colour": rng.choice(colours)}
        call = {"type": "function", "function": {"name": "answer", "arguments": json.dumps(arguments)}}
        messages = [
            {"role": "user", "content": [{"type": "text", "text": row["prompt"][0]["content"]}, *shown]},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "name": "answer", "content": environment.answer(**arguments)},
            {"role": "assistant", "content": "Done."},
        ]
        images = [block["image"] for block in shown]
        rows += [{**split(messages[:end], tools), "images": images} for end in (2, 4)]
    return rows


def split(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, str]:
    """Render messages, and split the last one off: what the model was shown, and what it writes."""
    (whole,), _ = render_jinja_template([messages], tools=tools, chat_template=TEMPLATE)
    (prompt,), _ = render_jinja_template(
        [messages[:-1]], tools=tools, chat_template=TEMPLATE, add_generation_prompt=True
    )
    assert whole.startswith(prompt)
    # The line break after the end of the turn is the template's, not the model's.
    return {"prompt": prompt, "completion": whole[len(prompt) :].rstrip("\n")}


def texts_of(rows: list[dict[str, Any]]) -> list[str]:
    """The episodes as text, cut at the template's own tokens: what a tokenizer should know."""
    texts = [row[column] for row in rows for column in ("prompt", "completion")]
    return [piece for text in texts for piece in CONTROL.split(text) if piece]


def fine_tune(model: Any, processor: Any, rows: list[dict[str, Any]], output: Path, seed: int) -> None:
    """Fine-tune on the completions of the rows."""
    args = SFTConfig(
        output_dir=str(output / "warm_up"),
        num_train_epochs=1,
        per_device_train_batch_size=16,
        learning_rate=2e-3,
        lr_scheduler_type="cosine",
        max_length=None,
        seed=seed,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        use_cpu=model.device.type == "cpu",
        bf16=model.device.type != "cpu",
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    SFTTrainer(model=model, args=args, processing_class=processor, train_dataset=Dataset.from_list(rows)).train()
