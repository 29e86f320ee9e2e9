"""MiniGrid's view in words. The codes are those of `minigrid.core.constants`, MiniGrid 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

__all__ = ["is_view", "seen"]

_SYMBOLS = "?.#,DKOBG~^"
_OBJECTS = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
_COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
_DOORS = ("open", "closed", "locked")
_DIRECTIONS = ("east", "south", "west", "north")
_DOOR = _OBJECTS.index("door")
_TELLING = ("door", "key", "ball", "box", "goal")
_LEGEND = "^ you, . empty, # wall, , floor, D door, K key, O ball, B box, G goal, ~ lava, ? not seen"


def is_view(environment: Any, observation: Any) -> bool:
    """Whether an observation is what MiniGrid's agent sees."""
    if not isinstance(observation, Mapping):
        return False
    given = cast("Mapping[str, Any]", observation)
    image = given.get("image")
    coded = image is not None and image.ndim == 3 and image.shape[2] == 3 and image[:, :, 0].max() < len(_OBJECTS)
    return hasattr(environment, "agent_view_size") and {"image", "direction", "mission"} == set(given) and coded


def seen(observation: Mapping[str, Any]) -> str:
    """The view of an agent that stands in the middle of the bottom row and looks up."""
    image = observation["image"]
    width, height = int(image.shape[0]), int(image.shape[1])
    middle, bottom = width // 2, height - 1
    rows: list[str] = []
    things: list[str] = []
    carried = "nothing"
    for row in range(height):
        cells: list[str] = []
        for column in range(width):
            kind, colour, state = (int(code) for code in image[column, row])
            here = (column, row) == (middle, bottom)
            cells.append("^" if here else _SYMBOLS[kind])
            if _OBJECTS[kind] not in _TELLING:
                continue
            if here:
                carried = _thing(kind, colour, state)
            else:
                things.append(f"{_thing(kind, colour, state)} {_place(middle - column, bottom - row)}")
        rows.append(" ".join(cells))
    return "\n".join(
        (
            f"Mission: {observation['mission']}",
            f"You face {_DIRECTIONS[int(observation['direction'])]}, which is up here ({_LEGEND}):",
            *rows,
            f"You see: {'; '.join(things) or 'nothing to use'}.",
            f"You carry: {carried}.",
        )
    )


def _thing(kind: int, colour: int, state: int) -> str:
    words = [_COLOURS[colour], _OBJECTS[kind]]
    if kind == _DOOR:
        words.insert(0, _DOORS[state])
    return f"{'an' if words[0][0] in 'aeiou' else 'a'} {' '.join(words)}"


def _place(left: int, ahead: int) -> str:
    parts = [f"{ahead} ahead"] if ahead else []
    if left:
        parts.append(f"{abs(left)} to the {'left' if left > 0 else 'right'}")
    return " and ".join(parts)
