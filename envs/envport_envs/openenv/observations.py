"""What a player sees of an OpenEnv server's observations."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import chain
from typing import Any, cast

from mcp_types import ContentBlock
from pydantic import TypeAdapter, ValidationError

from envport import Observation, ToolError, UpstreamLost
from envport.blocks import image_block
from envport.errors import MissingExtra
from envport_envs.upstream.faults import reward_of

__all__ = ["StepAnswer", "refusal", "shown", "tool_result"]

_SMALLEST_IMAGE = 32
_SMALLEST_SIDE = 8
_STARTS = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_LOST_CALLS = ("timeout", "transport_error")


@dataclass(frozen=True)
class StepAnswer:
    """An answer to `reset` or `step`.

    Attributes:
        observation: The observation.
        reward: The reward, if there is one.
        done: Whether the episode is over.
        metadata: What else the environment says.
    """

    observation: dict[str, Any]
    reward: float | None
    done: bool
    metadata: dict[str, Any]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> StepAnswer:
        """Read the data of an answer.

        Raises:
            UpstreamLost: It is not what the protocol has.
        """
        observation, reward, done = (data.get(key) for key in ("observation", "reward", "done"))
        metadata: Any = data.get("metadata") or {}
        if not isinstance(observation, dict) or not isinstance(metadata, dict):
            raise UpstreamLost("the OpenEnv server's answer has no observation")
        if not isinstance(done, bool):
            raise UpstreamLost(f"the OpenEnv server's answer has {done!r} as 'done', which is neither true nor false")
        return cls(
            cast("dict[str, Any]", observation),
            reward_of(reward, "OpenEnv server"),
            done,
            cast("dict[str, Any]", metadata),
        )


def shown(observation: Mapping[str, Any], hidden: Sequence[str]) -> Any:
    """An observation as its player sees it: data, and pictures after it.

    Args:
        observation: The observation.
        hidden: Names of fields that the player does not see.
    """
    pictures: list[Any] = []
    seen = {key: value for key, value in observation.items() if key not in hidden and (key != "metadata" or value)}
    data = _without_pictures(seen, pictures)
    if not data:
        return None
    return [data, *pictures] if pictures else data


def tool_result(tool: str, observation: Mapping[str, Any]) -> tuple[Any, bool]:
    """What a call of an environment's own MCP tool returned, and whether it is an error.

    Args:
        tool: The tool that was called.
        observation: The answer.

    Raises:
        UpstreamLost: It is the answer to another call, or the call was lost.
    """
    if observation.get("tool_name") != tool:
        raise UpstreamLost(f"the OpenEnv server answered a call of {tool!r} with {observation.get('tool_name')!r}")
    error: Any = observation.get("error")
    if isinstance(error, dict):
        told = cast("dict[str, Any]", error)
        if told.get("error_type") in _LOST_CALLS:
            raise UpstreamLost(f"the OpenEnv server lost a call of {tool!r}: {told.get('message')}")
        return str(told.get("message", "The call failed.")), True
    result: Any = observation.get("result")
    if not isinstance(result, dict) or not isinstance(cast("dict[str, Any]", result).get("content"), list):
        # An environment may answer calls itself, with anything.
        return shown({"result": result}, ()), False
    found = cast("dict[str, Any]", result)
    try:
        blocks = _blocks().validate_python(found["content"])
    except ValidationError as wrong:
        raise UpstreamLost(f"the OpenEnv server's result of {tool!r} is none of MCP: {wrong}") from None
    content = tuple(block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in blocks)
    structured: Any = found.get("structured_content")
    data = cast("dict[str, Any]", structured) if isinstance(structured, dict) else None
    return Observation(content=content, structured_content=data), found.get("is_error") is True


def refusal(result: Any) -> ToolError:
    """A failed call, as its player gets it.

    Args:
        result: What `tool_result` gave for it.
    """
    if not isinstance(result, Observation):
        return ToolError(str(result))
    first, *more = result.content or ({"type": "text", "text": "The call failed."},)
    if first["type"] != "text":
        return ToolError("The call failed.", content=result)
    left = Observation(content=tuple(more), structured_content=result.structured_content)
    return ToolError(first["text"], content=left if more or left.structured_content is not None else None)


def _without_pictures(value: Any, pictures: list[Any], shape: Any = None) -> Any:
    """The value with words in the place of pictures, which are added to `pictures`.

    Args:
        value: The value.
        pictures: The pictures that were found before.
        shape: The shape of the value, if the observation has one for it.
    """
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return {key: _without_pictures(item, pictures, found.get(f"{key}_shape")) for key, item in found.items()}
    picture = _picture_of_text(value) if isinstance(value, str) else _picture_of_pixels(value, shape)
    if picture is not None:
        pictures.append(picture)
        return f"<picture {len(pictures)}>"
    if isinstance(value, list):
        return [_without_pictures(item, pictures) for item in cast("list[Any]", value)]
    return value


def _picture_of_text(text: str) -> bytes | None:
    """A picture in base64."""
    if text.startswith("data:image/"):
        text = text.partition(";base64,")[2]
    if len(text) < _SMALLEST_IMAGE or not text.startswith(_STARTS):
        return None
    try:
        data = base64.b64decode(text, validate=True)
        image_block(data)
    except (binascii.Error, TypeError):
        return None
    return data


def _picture_of_pixels(value: Any, shape: Any) -> Any:
    """A picture as nested lists of rows, pixels and numbers from 0 to 255; or as one list, with a shape beside it."""
    if not isinstance(value, list):
        return None
    numbers: Any = cast("list[Any]", value)
    if not isinstance(shape, list):
        if (shape := _shape(numbers)) is None:
            return None
        numbers = chain.from_iterable(chain.from_iterable(numbers))
    sides = (*cast("list[Any]", shape), 1, 1, 1)[:3]
    if not all(type(side) is int for side in sides) or min(sides[:2]) < _SMALLEST_SIDE or sides[2] not in _MODES:
        return None
    height, width, depth = sides
    try:
        pixels = bytes(numbers)
    except (TypeError, ValueError):
        return None
    return _drawn(_MODES[depth], (width, height), pixels) if len(pixels) == height * width * depth else None


def _shape(rows: Any) -> list[int] | None:
    """The shape of nested lists that may be a picture."""
    width = len(rows[0]) if rows and isinstance(rows[0], list) else 0
    if not width or not isinstance(rows[0][0], list) or not all(isinstance(row, list) for row in rows):
        return None
    depth: int = len(rows[0][0])
    even = all(len(row) == width and all(type(dot) is list and len(dot) == depth for dot in row) for row in rows)
    return [len(rows), width, depth] if even and depth > 1 else None


def _drawn(mode: str, size: tuple[int, int], pixels: bytes) -> Any:
    try:
        pillow: Any = import_module("PIL.Image")
    except ImportError as error:
        raise MissingExtra("A picture in an observation", "images") from error
    return pillow.frombytes(mode, size, pixels)


@cache
def _blocks() -> TypeAdapter[list[Any]]:
    return TypeAdapter(list[ContentBlock])
