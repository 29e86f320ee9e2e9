"""A vision-language model of half a million parameters and its processor, made on the spot: nothing is downloaded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from transformers import (
    BatchFeature,
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
)

sys.path.append(str(Path(__file__).parents[1] / "grpo_catch"))

from tiny_policy import TEMPLATES, make_tokenizer

# Byte for byte, as TRL knows templates by their text.
TEMPLATE = (TEMPLATES / "qwen3_vl.jinja").read_text()
VISION_TOKENS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
PATCH, MERGE = 4, 2
PIXELS = 32 * 32


class TensorImages(Qwen2VLImageProcessorPil):
    """Qwen2-VL's image processor for Pillow, which returns tensors unless it is asked for something else.

    The one for torchvision does so too, and TRL's tool loop counts on it: it asks for nothing.
    """

    def preprocess(self, images: Any, **kwargs: Any) -> BatchFeature:
        """Make patches of images."""
        return super().preprocess(images, **{**kwargs, "return_tensors": kwargs.get("return_tensors") or "pt"})


class ImageProcessor(Qwen3VLProcessor):
    """Qwen3-VL's processor for text and images.

    Qwen's video processor needs torchvision. Without a parameter for one, transformers does not ask for it.
    """

    def __init__(self, image_processor=None, tokenizer=None, chat_template=None, **kwargs):
        super().__init__(image_processor, tokenizer, None, chat_template=chat_template, **kwargs)


def make_processor(texts: list[str], alone: str) -> ImageProcessor:
    """Train a tokenizer on rendered episodes, and put Qwen's image processor beside it.

    Args:
        texts: Episodes as plain text: prompts, observations, tool calls.
        alone: Regular expression of what is never merged with what stands beside it.
    """
    tokenizer = make_tokenizer(texts, alone)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", *VISION_TOKENS]})
    tokenizer.chat_template = TEMPLATE
    images = TensorImages(patch_size=PATCH, merge_size=MERGE, size={"shortest_edge": PIXELS, "longest_edge": PIXELS})
    return ImageProcessor(images, tokenizer, chat_template=TEMPLATE)


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3VLForConditionalGeneration:
    """Make a model with random weights."""
    image, video, start, end = (
        tokenizer.convert_tokens_to_ids(f"<|{name}|>")
        for name in ("image_pad", "video_pad", "vision_start", "vision_end")
    )
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 128,
            "intermediate_size": 384,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "max_position_embeddings": 1024,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [6, 5, 5]},
            # Transformers' 0.02 is meant for models a thousand times as large; from it, this one never learns.
            "initializer_range": 0.08,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 4,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "out_hidden_size": 128,
            "num_position_embeddings": PIXELS // PATCH**2,
            "deepstack_visual_indexes": [0],
            "initializer_range": 0.08,
        },
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=True,
    )
    return Qwen3VLForConditionalGeneration(config)
