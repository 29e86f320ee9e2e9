"""MCP content blocks in wire form: making them of texts and images, and showing them as text."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeAlias, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

__all__ = [
    "MOST_NESTED",
    "ContentBlock",
    "image_block",
    "is_image",
    "joined",
    "nested_too_deeply",
    "nesting",
    "prompt_of",
    "text_block",
    "text_of",
    "whole_text",
]

ContentBlock: TypeAlias = dict[str, Any]
"""One MCP content block in wire form, such as `{"type": "text", "text": "..."}` (MCP 2026-07-28, ContentBlock)."""

MOST_NESTED = 180
"""How many levels of objects and lists data may have. The JSON parser of Python's MCP clients takes 200, which include
those of the message around the data."""

_PLAIN_TEXT = {"type", "text"}

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def text_block(text: str) -> ContentBlock:
    """A text block. Lone surrogates become U+FFFD; see `whole_text`."""
    return {"type": "text", "text": whole_text(text)}


def whole_text(text: str) -> str:
    """The text with U+FFFD in place of lone surrogates, because JSON text must not contain them."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def nesting(value: Any) -> int:
    """How many objects and lists lie within one another, at most.

    Args:
        value: Data that could be written as JSON.
    """
    deepest = 0
    left: list[tuple[Any, int]] = [(value, 1)]
    while left:
        node, depth = left.pop()
        if isinstance(node, Mapping | list):
            deepest = max(deepest, depth)
            inside = cast("Mapping[str, Any]", node).values() if isinstance(node, Mapping) else cast("list[Any]", node)
            left += [(part, depth + 1) for part in inside]
    return deepest


def nested_too_deeply(value: Any, written: str | bytes) -> bool:
    """Whether data has more than `MOST_NESTED` levels, so that clients could not read it.

    Args:
        value: The data.
        written: JSON with the data in it. It mostly has too few brackets, and is searched faster than the data.
    """
    if isinstance(written, bytes):
        brackets = written.count(b"[") + written.count(b"{")
    else:
        brackets = written.count("[") + written.count("{")
    return brackets > MOST_NESTED and nesting(value) > MOST_NESTED


def text_of(block: ContentBlock) -> str:
    """A content block as text, for players that read only text. Training and evaluation get the same words."""
    kind = block.get("type")
    if kind == "text":
        return str(block["text"])
    if kind == "resource_link":
        return f"[{block.get('title') or block.get('name') or 'resource'}: {block.get('uri')}]"
    if kind == "resource":
        resource = block.get("resource", {})
        return str(resource.get("text") or f"[resource: {resource.get('uri')}]")
    return f"[{kind}: {block.get('mimeType') or 'unknown type'}]"


def joined(blocks: Iterable[ContentBlock]) -> list[ContentBlock]:
    """The blocks, with neighbouring text blocks made one. Some clients show their model only the first block."""
    result: list[ContentBlock] = []
    for block in blocks:
        if result and result[-1].keys() == block.keys() == _PLAIN_TEXT:
            result[-1] = {"type": "text", "text": f"{result[-1]['text']}\n\n{block['text']}"}
        else:
            result.append(block)
    return result


def is_image(value: Any) -> bool:
    """Whether a value is an image: bytes, or a Pillow image."""
    return isinstance(value, bytes | bytearray | memoryview) or _is_pil_image(value)


def image_block(image: Any) -> ContentBlock:
    """An image block.

    Args:
        image: A Pillow image, or the bytes of a PNG, JPEG, GIF or WebP file.

    Raises:
        TypeError: The bytes are of another format.
    """
    if _is_pil_image(image):
        buffer = io.BytesIO()
        image.save(buffer, format="PNG")
        image = buffer.getvalue()
    data = bytes(image)
    mime_type = next((mime for magic, mime in _MAGIC if data.startswith(magic)), None)
    if mime_type is None and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        mime_type = "image/webp"
    if mime_type is None:
        raise TypeError(
            "bytes are taken as an image, but these are not PNG, JPEG, GIF or WebP; "
            "return an MCP content block for anything else"
        )
    return {"type": "image", "data": base64.b64encode(data).decode("ascii"), "mimeType": mime_type}


def _is_pil_image(value: Any) -> bool:
    # Compared by name, so that only environments that return Pillow images need Pillow.
    return any(f"{cls.__module__}.{cls.__qualname__}" == "PIL.Image.Image" for cls in type(value).__mro__)


def prompt_of(parts: Any) -> str | list[ContentBlock]:
    """A prompt in wire form: text, or content blocks if it holds more than text.

    Args:
        parts: Text, or a list of texts, images (Pillow or bytes) and MCP content blocks.

    Raises:
        ValueError: It is something else; the message says what is allowed.
    """
    if isinstance(parts, str):
        return whole_text(parts)
    if not isinstance(parts, list | tuple):
        raise ValueError(f"a prompt cannot be of type {type(parts).__name__}; {_PROMPTS}")
    blocks = joined(_prompt_block(part) for part in cast("list[Any]", parts))
    if all(block.keys() == _PLAIN_TEXT for block in blocks):
        # `joined` has left one of them at most.
        return "".join(block["text"] for block in blocks)
    return blocks


_PROMPTS = "allowed: text, or a list of texts, images (PIL, or bytes of PNG, JPEG, GIF, WebP) and MCP content blocks"


def _prompt_block(part: Any) -> ContentBlock:
    if isinstance(part, str):
        return text_block(part)
    if is_image(part):
        try:
            return image_block(part)
        except TypeError:
            raise ValueError(f"a prompt holds bytes that are no image; {_PROMPTS}") from None
    if not isinstance(part, BaseModel | Mapping):
        raise ValueError(f"a prompt cannot hold a value of type {type(part).__name__}; {_PROMPTS}")
    try:
        block: Any = _content_blocks().validate_python(part)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"a prompt holds what is no MCP content block: {first['msg']}; {_PROMPTS}") from None
    return _whole(block.model_dump(mode="json", by_alias=True, exclude_none=True))


def _whole(value: Any) -> Any:
    """Plain data with `whole_text` in all of its strings."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, list):
        return [_whole(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in cast("dict[Any, Any]", value).items()}
    return value


@cache
def _content_blocks() -> TypeAdapter[Any]:
    # It would double the time that `import envport` takes.
    from mcp_types import ContentBlock as AnyContentBlock

    return TypeAdapter(AnyContentBlock)
