"""A policy of half a million parameters and its tokenizer, made on the spot: nothing is downloaded."""

from __future__ import annotations

import os.path
import re
from pathlib import Path
from typing import Any

import trl
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
TAGS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
CONTROL = re.compile(r"<\|im_start\|>|<\|im_end\|>|</?tool_(?:call|response)>")
# What decides the game stays a token of its own; whatever is always the same becomes one long token.
ALONE = r"\d|left|stay|right"
LONG = 40


def make_tokenizer(texts: list[str], alone: str = ALONE) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on rendered episodes.

    Args:
        texts: Episodes as they stand in a prompt.
        alone: Regular expression of what is never merged with what stands beside it.
    """
    # The template's own tokens are no part of any other.
    pieces = [piece for text in texts for piece in CONTROL.split(text) if piece]
    # What every episode begins with, the tools and the rules: the less of it, the sooner attention finds the rest.
    opening = [piece for piece in CONTROL.split(os.path.commonprefix(texts)) if len(piece) > LONG]  # noqa: RUF071
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            # The prompt of a turn as well: merged with what is said next, it would be another token than it was taught.
            pre_tokenizers.Split(Regex(rf"{alone}|assistant\n"), "isolated"),
            # Without a regex of its own, so that merges may span spaces.
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        pieces, trainers.BpeTrainer(vocab_size=3000, min_frequency=2, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.add_tokens([*TAGS, *opening])
    # Byte for byte, as TRL knows templates by their text.
    tokenizer.chat_template = (TEMPLATES / "qwen3_instruct_2507.jinja").read_text()
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """Make a model with random weights."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        # Transformers' 0.02 is meant for models a thousand times as large; from it, this one never learns.
        initializer_range=0.08,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


def load(model: str) -> tuple[Any, Any]:
    """Load a real model and its tokenizer instead."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(model), AutoTokenizer.from_pretrained(model)
