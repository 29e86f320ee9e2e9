"""How an episode stands in a chat: what training by GRPO shows a model, and what is exported to fine-tune one.

Both use these functions, so that the same episode gives the same tokens.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from envport.blocks import ContentBlock, text_of
from envport.errors import MissingExtra

__all__ = [
    "Shown",
    "decoded_image",
    "failure_text",
    "function_schema",
    "shown_content",
    "task_message",
    "unreadable_part",
]

Shown: TypeAlias = str | list[dict[str, Any]]
"""Text, or content parts as chat templates of vision models take them."""


def function_schema(listed: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as chat templates take it: `{"type": "function", "function": {...}}`.

    Args:
        listed: The tool exactly as MCP's `tools/list` shows it. Its input schema is used as it is.
    """
    schema = cast("dict[str, Any]", listed.get("inputSchema") or {"type": "object", "properties": {}})
    function = {"name": listed["name"], "description": str(listed.get("description") or ""), "parameters": schema}
    return {"type": "function", "function": function}


def task_message(prompt: str) -> dict[str, Any]:
    """The user's message before the first observation is added to it, as TRL does without anything in between.

    Args:
        prompt: What the player is told to do.
    """
    return {"role": "user", "content": f"{prompt}\n\n" if prompt else ""}


def failure_text(said: str) -> str:
    """A tool's message after a call that failed, in TRL's words.

    Args:
        said: What the player was told.
    """
    return str({"error": said})


def shown_content(
    content: Sequence[ContentBlock],
    structured: Mapping[str, Any] | None,
    image: Callable[[ContentBlock], dict[str, Any]],
) -> Shown:
    """What the model gets to see of an observation.

    Text stays text; several blocks are joined by newlines. With an image in it, the result is a list of parts.
    Structured data is shown as the text that came with it, as MCP clients do.

    Args:
        content: MCP content blocks.
        structured: The result as data.
        image: Makes the part of an image block.
    """
    if not content and structured is not None:
        return json.dumps(structured, ensure_ascii=False)
    if not any(block.get("type") == "image" for block in content):
        return "\n".join(text_of(block) for block in content)
    return [image(block) if block.get("type") == "image" else _text_part(text_of(block)) for block in content]


def decoded_image(block: ContentBlock) -> Any | None:
    """The Pillow image of an image block; `None` if it cannot be read.

    Raises:
        MissingExtra: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("an environment that shows images", "images") from None
    try:
        image = Image.open(io.BytesIO(base64.b64decode(block["data"])))
        image.load()
    except (OSError, binascii.Error, KeyError):
        return None
    return image


def unreadable_part(block: ContentBlock) -> dict[str, Any]:
    """The part that stands for an image that cannot be read."""
    return _text_part(f"[unreadable image: {block.get('mimeType')}]")


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
