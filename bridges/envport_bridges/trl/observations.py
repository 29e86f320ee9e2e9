"""From MCP content blocks to what TRL puts into a conversation."""

from __future__ import annotations

import base64
import binascii
import inspect
import io
import json
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

from envport.blocks import ContentBlock, text_of
from envport.errors import MissingExtra

__all__ = ["Shown", "ShownT", "placeholders_of", "show", "without_placeholders"]

Shown: TypeAlias = str | list[dict[str, Any]]
"""Text, or the content blocks that TRL passes to a vision model."""

ShownT = TypeVar("ShownT", str, Shown)


def show(content: Sequence[ContentBlock], structured: dict[str, Any] | None = None) -> Shown:
    """What the model gets to see.

    Text stays text; several blocks are joined by newlines. With an image in it, the result is a list of blocks as TRL
    takes them, the images as PIL images. Structured data is shown as the text that came with it, as MCP clients do.

    Args:
        content: MCP content blocks.
        structured: The result as data.

    Raises:
        MissingExtra: There is an image, and Pillow is not installed.
    """
    if not content and structured is not None:
        return json.dumps(structured, ensure_ascii=False)
    if not any(block.get("type") == "image" for block in content):
        return "\n".join(text_of(block) for block in content)
    return [_image(block) if block.get("type") == "image" else _text_block(block) for block in content]


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


def _text_block(block: ContentBlock) -> dict[str, Any]:
    return {"type": "text", "text": text_of(block)}


def _image(block: ContentBlock) -> dict[str, Any]:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("an environment that shows images", "images") from None
    try:
        image = Image.open(io.BytesIO(base64.b64decode(block["data"])))
        image.load()
    except (OSError, binascii.Error, KeyError):
        return {"type": "text", "text": f"[unreadable image: {block.get('mimeType')}]"}
    return {"type": "image", "image": image}
