"""From an action space to the parameters of a tool, and from a call's arguments to an action."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envport import ToolDefinition, ToolError
from envport.environment import ToolHints
from envport.errors import InvalidEnvironment
from envport_envs.gymnasium.library import gym, numpy

__all__ = ["Actions"]

_TOOL = "act"
_SUPPORTED = "Discrete, Box, MultiDiscrete, MultiBinary, Text, and Tuple and Dict of these"
_MOST_COMPONENTS = 16
_MOST_LEGAL = 1_000


@dataclass(frozen=True)
class _Parameter:
    """A parameter of the tool.

    Attributes:
        name: Its name.
        space: The space of its values.
        names: Names of the values, if they have any, in the order of a discrete space.
    """

    name: str
    space: Any
    names: Sequence[str] = ()

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.names)} if self.names else _schema(self.space)

    def read(self, value: Any) -> Any:
        if self.names:
            return int(self.space.start) + self.names.index(value)
        return _read(self.space, value)


class Actions:
    """The actions of an environment as the calls of one tool.

    Args:
        space: The action space.
        names: Names of the actions, or of the components of a `Box`. Ignored if there are more or fewer than needed.

    Raises:
        InvalidEnvironment: The space has no form that arguments could have.
    """

    def __init__(self, space: Any, names: Sequence[str] = ()):
        self._space = space
        self._parameters = _parameters(space, names)
        properties = {parameter.name: parameter.schema for parameter in self._parameters}
        self._schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def tool(self, method: str) -> ToolDefinition:
        """The tool, which is implemented by a method of the environment."""
        hints = ToolHints(read_only=False, destructive=False, idempotent=False, open_world=False)
        return ToolDefinition(_TOOL, self._schema, method, "Take an action.", hints=hints)

    def read(self, arguments: Mapping[str, Any]) -> Any:
        """The action that arguments mean.

        Args:
            arguments: What a player sent, as the tool's schema allows.

        Raises:
            ToolError: The action is outside of the space.
        """
        try:
            values = [parameter.read(arguments[parameter.name]) for parameter in self._parameters]
            action = _joined(self._space, values)
            if self._space.contains(action):
                return action
        except (OverflowError, ValueError):
            pass
        raise ToolError(f"This action is not one of the environment's. Its actions are: {self._space}.")

    def calls(self, mask: Any = None) -> list[tuple[str, dict[str, Any]]] | None:
        """The calls of a discrete space; `None` if there are too many, or if the space is another.

        Args:
            mask: Says of each action whether it makes sense now; `None` if all do.
        """
        first = self._parameters[0]
        if not isinstance(self._space, gym.spaces.Discrete) or self._space.n > _MOST_LEGAL:
            return None
        values = first.names or range(int(self._space.start), int(self._space.start + self._space.n))
        wanted = [True] * len(values) if mask is None or len(mask) != len(values) else [bool(it) for it in mask]
        return [(_TOOL, {first.name: value}) for value, legal in zip(values, wanted, strict=True) if legal]


def _parameters(space: Any, names: Sequence[str]) -> list[_Parameter]:
    spaces = gym.spaces
    if isinstance(space, spaces.Discrete):
        return [_Parameter("action", space, names if len(names) == space.n else ())]
    if isinstance(space, spaces.Dict):
        return [_Parameter(str(name), part) for name, part in space.items()]
    parts = _components(space)
    if parts is None:
        return [_Parameter("action", space)]
    named = names if len(names) == len(parts) else [f"action_{number}" for number in range(len(parts))]
    if len(parts) == 1 and named is not names:
        named = ["action"]
    return [_Parameter(name, part) for name, part in zip(named, parts, strict=True)]


def _components(space: Any) -> list[Any] | None:
    """The spaces of the components that have a parameter each; `None` if the space is one parameter."""
    spaces = gym.spaces
    if isinstance(space, spaces.Tuple):
        return list(space)
    shape = getattr(space, "shape", None)
    if shape is None or len(shape) != 1 or shape[0] > _MOST_COMPONENTS:
        return None
    if isinstance(space, spaces.Box):
        return [spaces.Box(low, high, (), space.dtype) for low, high in zip(space.low, space.high, strict=True)]
    if isinstance(space, spaces.MultiDiscrete):
        return [spaces.Discrete(int(n), start=int(start)) for n, start in zip(space.nvec, space.start, strict=True)]
    if isinstance(space, spaces.MultiBinary):
        return [spaces.Discrete(2) for _ in range(shape[0])]
    return None


def _joined(space: Any, values: list[Any]) -> Any:
    spaces = gym.spaces
    if isinstance(space, spaces.Dict):
        return dict(zip(space.keys(), values, strict=True))
    if isinstance(space, spaces.Tuple):
        return tuple(values)
    if _components(space) is not None:
        return numpy.asarray(values, space.dtype)
    return values[0]


def _schema(space: Any) -> dict[str, Any]:
    spaces = gym.spaces
    match space:
        case spaces.Discrete():
            return {"type": "integer", "minimum": int(space.start), "maximum": int(space.start + space.n - 1)}
        case spaces.Box():
            return _nested(space.shape, _number(space))
        case spaces.MultiDiscrete():
            low, high = space.start.min(), (space.start + space.nvec).max() - 1
            return _nested(space.shape, {"type": "integer", "minimum": int(low), "maximum": int(high)})
        case spaces.MultiBinary():
            return _nested(space.shape, {"type": "integer", "minimum": 0, "maximum": 1})
        case spaces.Text():
            letters = "".join(re.sub(r"([\\\]\[^/-])", r"\\\1", letter) for letter in sorted(space.character_set))
            lengths = {"minLength": int(space.min_length), "maxLength": int(space.max_length)}
            pattern = f"^[{letters}]{{{lengths['minLength']},{lengths['maxLength']}}}$"
            return {"type": "string", **lengths, "pattern": pattern}
        case spaces.Tuple():
            parts = [_schema(part) for part in space]
            return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
        case spaces.Dict():
            named = {str(name): _schema(part) for name, part in space.items()}
            return {"type": "object", "properties": named, "required": list(named), "additionalProperties": False}
        case _:
            raise InvalidEnvironment(f"no tool can have the action space {space}; supported: {_SUPPORTED}")


def _number(space: Any) -> dict[str, Any]:
    """The schema of one number of a box, with the bounds that hold for all of them."""
    whole = numpy.issubdtype(space.dtype, numpy.integer)
    low, high = (numpy.min(space.low), numpy.max(space.high)) if space.low.size else (0, 0)
    schema: dict[str, Any] = {"type": "integer" if whole else "number"}
    for key, bound in (("minimum", low), ("maximum", high)):
        if numpy.isfinite(bound):
            # The shortest number that is this bound in the space's own precision: 0.4, not 0.4000000059604645.
            schema[key] = int(bound) if whole else float(str(bound))
    return schema


def _nested(shape: Sequence[int], inner: dict[str, Any]) -> dict[str, Any]:
    for size in reversed(shape):
        inner = {"type": "array", "items": inner, "minItems": int(size), "maxItems": int(size)}
    return inner


def _read(space: Any, value: Any) -> Any:
    spaces = gym.spaces
    match space:
        case spaces.Discrete():
            # JSON's 1.0 is an integer too.
            return int(value)
        case spaces.Dict():
            return {name: _read(part, value[str(name)]) for name, part in space.items()}
        case spaces.Tuple():
            return tuple(_read(part, it) for part, it in zip(space, value, strict=True))
        case spaces.Text():
            return value
        case _:
            with numpy.errstate(over="ignore"):
                array = numpy.asarray(value, space.dtype)
            if not numpy.isfinite(array).all():
                raise OverflowError
            return array
