"""Observations: turns what an environment returns into MCP content blocks."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from envport.blocks import (
    MOST_NESTED,
    ContentBlock,
    image_block,
    is_image,
    joined,
    nested_too_deeply,
    nesting,
    text_block,
)
from envport.tools.sets import holds_set, in_fixed_order
from envport.types import Observation

__all__ = ["is_content_block", "observe", "text_observation", "told_of_its_end"]

_OVER = "envport/over"
_TOO_DEEP = (
    f"an observation has more than {MOST_NESTED} levels of objects and lists within one another, which clients cannot "
    "read: return less, or text"
)


def is_content_block(cls: type[Any]) -> bool:
    """Whether a class is one of the MCP SDK's content blocks.

    Such a class exists only if the SDK's types were imported. So they are not imported here, which would take a
    quarter of the time in which the process of an environment starts.
    """
    if "mcp_types" not in sys.modules:
        return False
    from mcp_types import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent

    return issubclass(cls, TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource)


def text_observation(*texts: str) -> Observation:
    """An observation of text blocks."""
    return Observation(content=tuple(text_block(text) for text in texts))


def told_of_its_end(observation: Observation, words: str, *, more_keys: bool) -> Observation:
    """The last observation of an episode, with words about its end that the environment did not say itself.

    They follow the text. Data gets them under the key `envport/over`, because some clients show their model either
    the text or the data.

    Args:
        observation: The observation.
        words: The words.
        more_keys: Whether the tool's output schema allows further keys.
    """
    blocks, data = list(observation.content), observation.structured_content
    if data is None:
        return Observation(content=(*blocks[:-1], *joined([*blocks[-1:], text_block(words)])))
    more = {**data, _OVER: words} if more_keys else data
    if more_keys and blocks == [text_block(_json(data))]:
        return Observation(content=(text_block(_json(more)),), structured_content=more)
    return Observation(content=(*blocks, text_block(words)), structured_content=more)


def observe(value: Any) -> Observation:
    """Turn what an environment returned into an observation.

    | returned | becomes |
    |---|---|
    | `str` | a text block |
    | `None` | nothing |
    | PIL image, PNG, JPEG, GIF or WebP bytes | an image block |
    | pydantic model, dataclass, mapping | structured content, and a text block with the same as JSON |
    | `int`, `float`, `bool` | a text block with the JSON value |
    | content block of the MCP SDK | itself |
    | list or tuple | the blocks of its items, in order; structured content only if just one item shows anything |

    Some clients show their model the structured content and nothing else, so beside a text or an image it would hide
    them. A tool that has an output schema, and more to show than its data, returns an `Observation` with both.

    NumPy and PyTorch arrays inside data become lists, and sets become sorted lists.

    Raises:
        TypeError: The value is none of these, or contains something that JSON cannot represent.
    """
    if type(value) is str:
        return Observation(content=(text_block(value),))
    if isinstance(value, Observation):
        if value.structured_content is not None and nesting(value.structured_content) > MOST_NESTED:
            raise TypeError(_TOO_DEEP)
        return value
    if isinstance(value, list | tuple):
        return _join(observe(item) for item in cast("Iterable[Any]", value))
    block, structured = _convert(value)
    return Observation(content=(block,) if block is not None else (), structured_content=structured)


def _join(parts: Iterable[Observation]) -> Observation:
    shown = [part for part in parts if part.content or part.structured_content is not None]
    if len(shown) == 1:
        return shown[0]
    return Observation(content=tuple(block for part in shown for block in part.content))


def _convert(value: Any) -> tuple[ContentBlock | None, dict[str, Any] | None]:
    if value is None:
        return None, None
    if is_content_block(value.__class__):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True), None
    if isinstance(value, str):
        # Not `str(value)`, because an enum overrides `__str__`.
        return text_block(str.__str__(value)), None
    if is_image(value):
        return image_block(value), None
    if isinstance(value, bool | int | float):
        return text_block(_json(value)), None
    if isinstance(value, BaseModel | Mapping) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return _data(value)
    raise TypeError(
        f"an observation cannot be a {type(value).__qualname__}; allowed: text, an image (PIL or bytes), a pydantic "
        "model, dataclass or mapping, a number, an MCP content block, None, or a list of these"
    )


def _data(value: Any) -> tuple[ContentBlock, dict[str, Any] | None]:
    data = _plain(value)
    text = _json(data)
    if nested_too_deeply(data, text):
        raise TypeError(_TOO_DEEP)
    block = text_block(text)
    if block["text"] != text:
        data = json.loads(block["text"])
    # A root model may be a list, but structured content has to be an object.
    return block, cast("dict[str, Any]", data) if isinstance(data, dict) else None


def _plain(value: Any) -> Any:
    try:
        data = to_jsonable_python(value, by_alias=True, inf_nan_mode="constants", fallback=_unusual)
        return in_fixed_order(value, data) if holds_set(value) else data
    except (PydanticSerializationError, TypeError, UnicodeEncodeError) as error:
        raise TypeError(f"an observation contains a value that JSON cannot represent: {error}") from None


def _unusual(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    # NumPy's and PyTorch's arrays and numbers.
    if callable(to_list := getattr(value, "tolist", None)):
        return to_list()
    raise TypeError(f"unknown type {type(value).__qualname__}")


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        if isinstance(value, float) and not math.isfinite(value):
            raise TypeError(f"an observation cannot be the number {value}: JSON cannot represent it") from None
        raise TypeError("an observation contains NaN or infinity, which JSON cannot represent") from None
