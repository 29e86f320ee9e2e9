"""The tools that an episode lists: all that its environment declares, or those of its task."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

from envport.environment import Environment, ToolDefinition
from envport.errors import InvalidEnvironment, InvalidRequest, ToolError
from envport.tools.schema import ToolSpec, fingerprint, from_definition, tools_of
from envport.types import Task

__all__ = ["EPISODE_ID", "START_EPISODE", "TaskTools", "Toolset"]

START_EPISODE = "start_episode"
"""The tool with which a player starts an episode at the address of an environment."""

EPISODE_ID = "episode_id"
"""The argument that every tool has at the address of an environment."""

ValueT = TypeVar("ValueT")

_KEPT = 1_024


@dataclass(frozen=True, eq=False)
class Toolset:
    """Tools in the order in which they are listed.

    Attributes:
        tools: The tools by name. Do not modify it.
    """

    tools: Mapping[str, ToolSpec]

    @cached_property
    def listing(self) -> list[dict[str, Any]]:
        """The tools as `tools/list` shows them on an episode's URL. Do not modify it."""
        return [tool.listing for tool in self.tools.values()]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the listing in canonical JSON."""
        return fingerprint(self.listing)

    @classmethod
    def declared(cls, environment: Environment) -> Toolset:
        """The tools that an environment declares.

        Raises:
            InvalidEnvironment: A tool breaks the authoring contract.
        """
        return cls(_unreserved(tools_of(environment).values()))


class TaskTools:
    """The tools of an environment's tasks, as its `tools_for` gives them.

    Args:
        environment: An instance of the environment.
        declared: The tools that it declares.
    """

    def __init__(self, environment: Environment, declared: Toolset):
        self._environment = environment
        self._declared = declared
        # Checking a schema takes a millisecond, and most tasks share their tools with others.
        self._toolsets = _Recent[Toolset]()
        self._own = _Recent[ToolSpec]()

    def of(self, task: Task) -> Toolset:
        """The tools of a task.

        Raises:
            InvalidEnvironment: `tools_for` fails, or returns what it must not.
            InvalidRequest: The environment refuses the task.
        """
        where = f"tools_for of {type(self._environment).__qualname__}, task {task.id!r}"
        try:
            given: Any = self._environment.tools_for(task)
            if given is None:
                return self._declared
            _require_tools(given, where)
            key = tuple(map(_key, given))
            known = self._toolsets.get(key)
            return known if known is not None else self._toolsets.keep(key, self._make(given, where))
        except InvalidEnvironment:
            raise
        except ToolError as refused:
            raise InvalidRequest(str(refused)) from None
        except (Exception, SystemExit) as error:
            raise InvalidEnvironment(f"{where}, fails: {type(error).__name__}: {error}") from error

    def _make(self, given: Sequence[str | ToolDefinition], where: str) -> Toolset:
        tools = [self._tool(item, where) for item in given]
        names = [tool.name for tool in tools]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InvalidEnvironment(f"{where}, returns two tools named {twice!r}")
        return Toolset(_unreserved(tools))

    def _tool(self, item: str | ToolDefinition, where: str) -> ToolSpec:
        if isinstance(item, str):
            if item not in self._declared.tools:
                raise InvalidEnvironment(
                    f"{where}, names the tool {item!r}, which is not declared; "
                    f"declared: {', '.join(self._declared.tools) or 'none'}"
                )
            return self._declared.tools[item]
        key = _key(item)
        known = self._own.get(key)
        return known if known is not None else self._own.keep(key, from_definition(item, self._environment))


class _Recent(Generic[ValueT]):
    """The values that were used last."""

    def __init__(self) -> None:
        self._values: OrderedDict[Hashable, ValueT] = OrderedDict()

    def get(self, key: Hashable) -> ValueT | None:
        try:
            self._values.move_to_end(key)
            return self._values[key]
        except KeyError:
            # Another thread may have dropped it in between.
            return None

    def keep(self, key: Hashable, value: ValueT) -> ValueT:
        self._values[key] = value
        if len(self._values) > _KEPT:
            self._values.popitem(last=False)
        return value


def _require_tools(given: Any, where: str) -> None:
    tools = list(cast("Sequence[Any]", given)) if isinstance(given, Sequence) and not isinstance(given, str) else None
    if tools is None or not all(isinstance(item, str | ToolDefinition) for item in tools):
        raise InvalidEnvironment(
            f"{where}, returns {given!r}; it has to return a sequence of names of declared tools and ToolDefinitions, "
            "or None for all declared tools"
        )
    if not tools:
        raise InvalidEnvironment(f"{where}, returns no tools: a task needs one at least")


def _key(item: str | ToolDefinition) -> Hashable:
    if isinstance(item, str):
        return item
    schemas = json.dumps([item.input_schema, item.output_schema], default=dict)
    return item.name, item.method, schemas, item.description, item.hints


def _unreserved(tools: Iterable[ToolSpec]) -> dict[str, ToolSpec]:
    """The tools by name. Names that the gateway uses itself are refused."""
    for tool in (tools := list(tools)):
        if tool.name == START_EPISODE or EPISODE_ID in tool.input_schema["properties"]:
            raise InvalidEnvironment(
                f"the tool name {START_EPISODE!r} and the argument name {EPISODE_ID!r} are the gateway's; "
                f"rename them in tool {tool.name!r}"
            )
    return {tool.name: tool for tool in tools}
