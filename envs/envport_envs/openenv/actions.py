"""From the schema of an environment's actions to tools, and from a call back to an action."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from envport.errors import ConfigurationError

__all__ = ["ActionTool", "ActionTools"]

_LOCAL = "#/$defs/"
_CALL_TOOL, _LIST_TOOLS = "call_tool", "list_tools"
_UNDESCRIBED = "Take an action."
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

Schema = dict[str, Any]


@dataclass(frozen=True)
class ActionTool:
    """A type of action as a tool.

    Attributes:
        name: Name of the tool.
        schema: JSON Schema of its arguments.
        description: What the action does.
        fixed: Fields of the action that always have the same value, such as the one that tells the type.
        within: The field of the action that holds it, if it is not the action itself.
    """

    name: str
    schema: Schema
    description: str = _UNDESCRIBED
    fixed: Schema = field(default_factory=dict[str, Any])
    within: str | None = None

    def action(self, arguments: Mapping[str, Any]) -> Schema:
        """The action of a call with these arguments."""
        action = {**self.fixed, **arguments}
        return action if self.within is None else {self.within: action}


@dataclass(frozen=True)
class ActionTools:
    """What an environment takes.

    Attributes:
        tools: A tool for each type of action.
        has_tools: Whether it takes calls of MCP tools of its own; `None` if that has to be tried, because its schema
            says nothing.
    """

    tools: tuple[ActionTool, ...]
    has_tools: bool | None

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> ActionTools:
        """Read the schema of the actions.

        Raises:
            ConfigurationError: It is not the schema of objects.
        """
        definitions = cast("Schema", schema.get("$defs", {}))
        top = _resolved(dict(schema), definitions)
        within, members = _members(top, definitions)
        if members is None:
            return cls._one(top, definitions)
        kept = [member for member in members if _constants(member).get("type") not in (_CALL_TOOL, _LIST_TOOLS)]
        tools = tuple(_tool(_name(member), member, definitions, within) for member in kept)
        names = [tool.name for tool in tools]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigurationError(f"two types of action of the OpenEnv server have the name {twice[0]!r}")
        return cls(tools, any(_constants(member).get("type") == _CALL_TOOL for member in members))

    @classmethod
    def _one(cls, top: Schema, definitions: Schema) -> ActionTools:
        if top.get("type") != "object" or not isinstance(top.get("properties", {}), dict):
            raise ConfigurationError("the OpenEnv server's actions are no objects, so they cannot be tools")
        if _constants(top).get("type") == _CALL_TOOL and "tool_name" in top["properties"]:
            return cls((), has_tools=True)
        tool = _tool("step", top, definitions, None)
        says_nothing = not tool.schema["properties"] and not tool.fixed
        return cls((tool,), has_tools=None if says_nothing else False)


def _tool(name: str, schema: Schema, definitions: Schema, within: str | None) -> ActionTool:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"a type of action of the OpenEnv server has the name {name!r}, which no tool can have: allowed are 1 to "
            "64 letters, digits, '_' and '-'"
        )
    fixed = _constants(schema)
    required = [key for key in schema.get("required", []) if key not in fixed]
    properties = {key: value for key, value in schema.get("properties", {}).items() if key not in fixed}
    if _is_metadata(properties.get("metadata")) and "metadata" not in required:
        # Every action has it, for the trainer's own use.
        del properties["metadata"]
    shown = {key: value for key, value in schema.items() if key not in ("description", "$defs", "title")}
    shown |= {"properties": properties, "required": required}
    used = dict(_used(shown, definitions))
    if not required:
        del shown["required"]
    description = str(schema.get("description") or _UNDESCRIBED)
    return ActionTool(name, {**shown, **({"$defs": used} if used else {})}, description, fixed, within)


def _members(top: Schema, definitions: Schema) -> tuple[str | None, list[Schema] | None]:
    """The types of action, if the actions are a union, and the field that holds them."""
    if (members := _union(top, definitions)) is not None:
        return None, members
    properties = {
        key: value for key, value in top.get("properties", {}).items() if key != "metadata" or not _is_metadata(value)
    }
    if len(properties) == 1:
        [(name, only)] = properties.items()
        if isinstance(only, dict) and name in top.get("required", []):
            return name, _union(cast("Schema", only), definitions)
    return None, None


def _union(schema: Schema, definitions: Schema) -> list[Schema] | None:
    """The members of a union of objects."""
    members: Any = schema.get("oneOf") or schema.get("anyOf")
    if not isinstance(members, list) or not all(isinstance(member, dict) for member in cast("list[Any]", members)):
        return None
    found = [_resolved(member, definitions) for member in cast("list[Schema]", members)]
    return found if all(member.get("type") == "object" and "properties" in member for member in found) else None


def _resolved(schema: Schema, definitions: Schema) -> Schema:
    reference: Any = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    found: Any = definitions.get(reference.removeprefix(_LOCAL)) if reference.startswith(_LOCAL) else None
    if not isinstance(found, dict):
        raise ConfigurationError(f"the OpenEnv server's actions refer to {reference!r}, which its schema does not have")
    return cast("Schema", found)


def _constants(schema: Schema) -> Schema:
    """The fields that have one value only."""
    properties: dict[str, Any] = schema.get("properties", {})
    return {
        key: value["const"]
        for key, value in properties.items()
        if isinstance(value, dict) and isinstance(cast("Schema", value).get("const"), str)
    }


def _is_metadata(schema: Any) -> bool:
    return isinstance(schema, dict) and cast("Schema", schema).get("type") == "object"


def _name(member: Schema) -> str:
    """The name of a type of action: what tells the type, or that of its class."""
    constants = _constants(member)
    if len(constants) == 1:
        return str(next(iter(constants.values())))
    title = re.sub("Action$", "", str(member.get("title", ""))) or "step"
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", title).lower()


def _used(schema: Any, definitions: Schema) -> Iterator[tuple[str, Any]]:
    """The definitions that a schema refers to, in the order in which the server has them."""
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        for name in _references(waiting.pop()):
            if name not in found and name in definitions:
                found.add(name)
                waiting.append(definitions[name])
    yield from ((name, value) for name, value in definitions.items() if name in found)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in cast("Schema", value).items():
            if key in ("$ref", "mapping"):
                for text in [item] if isinstance(item, str) else cast("Schema", item).values():
                    yield str(text).removeprefix(_LOCAL)
            yield from _references(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _references(item)
