"""From MCP content blocks to what TRL puts into a conversation."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, TypeVar

from envport.blocks import ContentBlock
from envport_bridges.chat import Shown, decoded_image, shown_content, unreadable_part

__all__ = ["Shown", "ShownT", "placeholders_of", "show", "without_placeholders"]

ShownT = TypeVar("ShownT", str, Shown)


def show(content: Sequence[ContentBlock], structured: dict[str, Any] | None = None) -> Shown:
    """What the model gets to see, with images as PIL images; see `envport_bridges.chat.shown_content`.

    Args:
        content: MCP content blocks.
        structured: The result as data.

    Raises:
        MissingExtra: There is an image, and Pillow is not installed.
    """
    return shown_content(content, structured, _image)


def placeholders_of(processing_class: Any) -> tuple[str, ...]:
    """The texts that are to be broken up where an environment shows them.

    For a vision model's processor, what it takes for a picture or a video. For a tokenizer, its control tokens if its
    transformers has no `sanitize_control_tokens` (5.19 and older), and otherwise none.
    """
    if not hasattr(processing_class, "tokenizer"):
        return () if _sanitizes(processing_class) else _control_tokens_of(processing_class)
    found = (getattr(processing_class, name, None) for name in ("image_token", "video_token"))
    return tuple(token for token in found if isinstance(token, str) and token)


def _sanitizes(tokenizer: Any) -> bool:
    return "sanitize_control_tokens" in inspect.signature(tokenizer.apply_chat_template).parameters


def _control_tokens_of(tokenizer: Any) -> tuple[str, ...]:
    """The special tokens, and the added ones that stand in the chat template."""
    added = [(token.content, token.special) for token in tokenizer.added_tokens_decoder.values()]
    template = str(tokenizer.chat_template)
    return tuple(text for text, special in added if text.strip() and (special or text in template))


def without_placeholders(shown: ShownT, placeholders: Sequence[str]) -> ShownT:
    """The same, with a space in every placeholder, so that it is text.

    Args:
        shown: Text or content blocks.
        placeholders: What `placeholders_of` gives.
    """
    if isinstance(shown, str):
        for token in placeholders:
            shown = shown.replace(token, f"{token[0]} {token[1:]}")
        return shown
    broken: Any = [
        {**block, "text": without_placeholders(str(block["text"]), placeholders)} if "text" in block else block
        for block in shown
    ]
    return broken


def _image(block: ContentBlock) -> dict[str, Any]:
    image = decoded_image(block)
    return {"type": "image", "image": image} if image is not None else unreadable_part(block)
