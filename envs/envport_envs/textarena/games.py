"""What is known of a game whose moves are tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envport import ToolDefinition
from envport.environment import ToolHints
from envport.types import LegalCall

__all__ = ["Game", "Move", "array", "choice", "integer", "word"]

_HINTS = ToolHints(read_only=False, destructive=False, idempotent=False, open_world=False)


@dataclass(frozen=True, slots=True)
class Move:
    """A kind of move.

    Attributes:
        name: Name of its tool.
        description: What it does.
        text: The move as TextArena reads it, with the names of parameters in braces.
        parameters: The schema of each parameter.
    """

    name: str
    description: str
    text: str
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    def tool(self, method: str) -> ToolDefinition:
        """The tool, which is implemented by a method of the environment."""
        schema = {
            "type": "object",
            "properties": {name: dict(it) for name, it in self.parameters.items()},
            "required": list(self.parameters),
            "additionalProperties": False,
        }
        return ToolDefinition(self.name, schema, method, self.description, hints=_HINTS)

    def written(self, arguments: Mapping[str, Any]) -> str:
        """The move as TextArena reads it."""
        return self.text.format_map({name: _written(value) for name, value in arguments.items()})


@dataclass(frozen=True, slots=True)
class Game:
    """A game whose moves are tools. The functions get TextArena's object of the game.

    Attributes:
        rules: What a player is told. The object may not have been reset.
        moves: The kinds of moves. The object may not have been reset.
        legal: The moves that can be made now by the player whose turn it is; a sample if there are many. None where a
            list of them would tell the solution.
        players: How many play it.
        max_steps: After how many calls an episode is truncated; `None` if TextArena's own limit of turns decides.
    """

    rules: Callable[[Any], str]
    moves: Callable[[Any], Sequence[Move]]
    legal: Callable[[Any], list[LegalCall]]
    players: int = 1
    max_steps: int | None = None


def integer(low: int, high: int, description: str) -> dict[str, Any]:
    """The schema of an integer."""
    return {"type": "integer", "minimum": low, "maximum": high, "description": description}


def choice(values: Sequence[str], description: str) -> dict[str, Any]:
    """The schema of one of a few texts."""
    return {"type": "string", "enum": list(values), "description": description}


def word(pattern: str, description: str) -> dict[str, Any]:
    """The schema of a word."""
    return {"type": "string", "pattern": pattern, "description": description}


def array(items: Mapping[str, Any], length: int, description: str) -> dict[str, Any]:
    """The schema of a list of a fixed length."""
    bounds = {"minItems": length, "maxItems": length}
    return {"type": "array", "items": dict(items), **bounds, "description": description}


def _written(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(_written(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    # JSON's 1.0 is an integer too.
    return str(int(value)) if isinstance(value, float) else str(value)
