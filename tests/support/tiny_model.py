"""A tokenizer and a tiny model made on the spot, and trainers whose model keeps to a script."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig
from without_triton import compute_losses_without_triton

from envport.registry import load

compute_losses_without_triton()

# Models as small as these are only slowed down by more threads, and so is everything else on the machine.
torch.set_num_threads(1)

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

Script = Callable[[str, int], str]
"""What the model writes, given the text so far and how many turns it has had."""


@cache
def _backend() -> str:
    """A byte-level BPE that makes few tokens of what stands in every prompt here, and takes any text."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    texts = [(TEMPLATES / "qwen3_instruct_2507.jinja").read_text().replace("\\n", "\n")]
    texts += [json.dumps(tool)[:-1] for tool in load("mirror:Guess").listing for _ in range(2)]
    texts += ['{"name": "guess", "arguments": {"number": '] * 2
    # Never whole control tokens: those are to be made of many pieces where they stand in somebody's text.
    lines = [line for text in texts for line in re.split(r"\n|<[|/]?\w+\|?>", text)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(lines, trainer)
    return backend.to_str()


def make_tokenizer(template: str = "qwen3_instruct_2507") -> PreTrainedTokenizerFast:
    """A tokenizer, made on the spot."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_backend()), eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.add_tokens(list(TAGS))
    tokenizer.chat_template = (TEMPLATES / f"{template}.jinja").read_text()
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast, hidden: int = 16) -> Qwen3ForCausalLM:
    """A model that is small enough for every test to have one of its own."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


def save_model(folder: Path) -> None:
    """Save an untrained model, as a trainer saves a checkpoint."""
    tokenizer = make_tokenizer()
    make_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def config(tmp_path: Path, config_class: type[GRPOConfig] = GRPOConfig, **options: Any) -> GRPOConfig:
    """Settings for a run of a few seconds."""
    defaults: dict[str, Any] = {
        "output_dir": str(tmp_path),
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 2048,
        "max_tool_calling_iterations": 6,
        "max_steps": 1,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "beta": 0.0,
        "shuffle_dataset": False,
        "chat_template_kwargs": {"sanitize_control_tokens": True},
    }
    return config_class(**defaults | options)


def calls(*written: tuple[str, str]) -> str:
    """What the model writes to call tools: names, and arguments as JSON text."""
    blocks = [
        f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>' for name, arguments in written
    ]
    return "\n".join(blocks) + "<|im_end|>"


def scripted(trainer_class: type[Any], script: Script) -> type[Any]:
    """A trainer whose model writes what a script says; everything else is the trainer's own."""

    class Scripted(trainer_class):
        def _generate_single_turn(self, prompt_ids: Sequence[list[int]], *args: Any, **kwargs: Any) -> Any:
            texts = self._tokenizer.batch_decode(prompt_ids)
            written = [script(text, text.count("<|im_start|>assistant") - 1) for text in texts]
            self.seen = [*getattr(self, "seen", []), *texts]
            ids = [self._tokenizer(text, add_special_tokens=False)["input_ids"] for text in written]
            return ids, None

    return Scripted
