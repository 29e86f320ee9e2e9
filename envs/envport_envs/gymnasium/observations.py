"""What a player sees: an observation in words or as plain data, and pictures."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from envport.errors import MissingExtra
from envport_envs.gymnasium.library import numpy
from envport_envs.gymnasium.minigrid import is_view, seen
from envport_envs.gymnasium.names import Documented

__all__ = ["picture", "readable", "without_colours", "words"]

_SMALLEST_PICTURE = 16
_SAID_TWICE = re.compile(r"^ +\(\w+\)\n", re.MULTILINE)


def words(environment: Any, observation: Any, known: Documented, drawing: str | None) -> Any:
    """An observation for a player that reads: text or plain data. What is a picture in it stays one.

    Args:
        environment: The environment, unwrapped.
        observation: What its `reset` or `step` returned.
        known: What the documentation says of it.
        drawing: What it rendered as text; `None` if it does not.
    """
    if known.said is not None:
        return _below(known.said(environment, observation), drawing)
    if is_view(environment, observation):
        return _below(seen(observation), drawing)
    if _is_picture(observation):
        return picture(observation)
    if isinstance(observation, Mapping) and (frames := _frames(cast("Mapping[str, Any]", observation))):
        data = {key: part for key, part in cast("Mapping[str, Any]", observation).items() if key not in frames}
        return [*([readable(data)] if data else []), *(picture(frame) for frame in frames.values())]
    plain: Any = readable(observation)
    if drawing is not None:
        return _below(plain if isinstance(plain, str) else f"Observation: {plain}", drawing)
    if known.observed:
        return dict(zip(known.observed, plain, strict=True))
    return cast("Any", plain) if isinstance(plain, str | dict) else {"observation": plain}


def _below(told: str, drawing: str | None) -> str:
    return told if drawing is None else f"{told}\n\n{without_colours(drawing)}"


def readable(value: Any) -> Any:
    """Plain data: arrays as lists of short numbers, tuples as lists, and what JSON has no number for as text."""
    match value:
        case Mapping():
            return {str(key): readable(part) for key, part in cast("Mapping[Any, Any]", value).items()}
        case tuple() | list():
            return [readable(part) for part in cast("list[Any]", value)]
        case numpy.ndarray():
            return [readable(part) for part in value] if value.ndim else readable(value[()])
        case bool() | str() | None | int():
            return value
        case float() if math.isfinite(value) and not isinstance(value, numpy.generic):
            return value
        case numpy.floating() if numpy.isfinite(value):
            # The shortest number that means the same in its own precision.
            return float(str(value))
        case numpy.bool_() | numpy.integer():
            return value.item()
        case _:
            return str(value)


def picture(frame: Any) -> Any:
    """A frame as an image."""
    try:
        images: Any = import_module("PIL.Image")
    except ImportError:
        raise MissingExtra("Pictures of gymnasium environments", "images") from None
    return images.fromarray(frame)


def without_colours(drawing: str) -> str:
    """A drawing for terminals as plain text, with brackets around what had a coloured background: the player."""
    marked = re.sub(r"\x1b\[4\d(?:;\d+)*m(.*?)\x1b\[0m", r"[\1]", drawing)
    plain = re.sub(r"\x1b\[[\d;]*m", "", marked)
    return _SAID_TWICE.sub("", plain + "\n").strip("\n")


def _frames(observation: Mapping[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in observation.items() if _is_picture(part)}


def _is_picture(array: Any) -> bool:
    if not isinstance(array, numpy.ndarray):
        return False
    colours = array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)
    return array.dtype == numpy.uint8 and colours and min(array.shape[:2]) >= _SMALLEST_PICTURE
