"""Environment classes, made from a tool listing: no source text, nothing evaluated."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from envport.errors import ConfigurationError
from envport_bridges.safe_names import SafeNames
from envport_bridges.trl.tools import AsyncExplicitTool, ExplicitTool, ListedTool

__all__ = ["ListedClass", "ToolAttribute", "define_tools", "environment_class", "tools_of"]


class _Listed(str):
    """An attribute name that sorts by its place in the listing, after every ordinary name.

    `inspect.getmembers` sorts members by name, and TRL shows tools to the model in that order. The model is to see
    them in the order in which MCP lists them.
    """

    place: int

    def __new__(cls, name: str, place: int) -> _Listed:
        listed = super().__new__(cls, name)
        listed.place = place
        return listed

    def __lt__(self, other: str) -> bool:
        return self.place < other.place if isinstance(other, _Listed) else False

    def __gt__(self, other: str) -> bool:
        return self.place > other.place if isinstance(other, _Listed) else True

    # Equality and hash stay those of the text, by which attributes are found.
    __hash__ = str.__hash__


class ListedClass(type):
    """Class of environment classes: lists their tools in the order of the listing."""

    _tools: Mapping[str, ListedTool]

    def __dir__(cls) -> list[str]:
        plain = [name for name in super().__dir__() if name not in cls._tools]
        return plain + [_Listed(name, place) for place, name in enumerate(cls._tools)]


class ToolAttribute:
    """A tool on an environment class: a plain function on the class, the bound tool on an instance.

    Args:
        definition: The tool.
        bind: Makes what an instance shows: an explicit tool, or a method.
    """

    def __init__(self, definition: ListedTool, bind: Callable[[ToolAttribute, Any], Any]):
        self.definition = definition
        self.placeholder = definition.placeholder()
        self._bind = bind

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        return self.placeholder if instance is None else self._bind(self, instance)


def _bind_explicit(attribute: ToolAttribute, instance: Any) -> Any:
    return ExplicitTool(attribute.definition, instance)


def _bind_async(attribute: ToolAttribute, instance: Any) -> Any:
    return AsyncExplicitTool(attribute.definition, instance)


def _bind_method(attribute: ToolAttribute, instance: Any) -> Any:
    return types.MethodType(attribute.placeholder, instance)


def define_tools(listing: Sequence[Mapping[str, Any]], base: type[Any]) -> dict[str, ListedTool]:
    """Read a listing: the tools by the attribute that each of them gets.

    Args:
        listing: Tools exactly as MCP's `tools/list` shows them.
        base: The class that the attributes join; none of its own is shadowed.

    Raises:
        ConfigurationError: A tool has no name, two have the same, or one has a schema that refers to itself without
            end or is nested too deeply.
    """
    names = [str(listed.get("name") or "") for listed in listing]
    if not all(names):
        raise ConfigurationError("the tool listing has a tool without a name")
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ConfigurationError(f"the tool listing has several tools named {', '.join(map(repr, twice))}")
    reserved = {*dir(base), "reset", "get_reward"}
    identifiers = SafeNames.of(names, prefix="tool_", reserved=reserved).safe
    definitions = [ListedTool.of(listed, identifiers[name]) for name, listed in zip(names, listing, strict=True)]
    for definition in definitions:
        if (why := definition.arguments.why_useless) is not None:
            raise ConfigurationError(f"tool {definition.name!r} cannot be called: its schema {why}")
    return {definition.identifier: definition for definition in definitions}


def environment_class(
    name: str,
    listing: Sequence[Mapping[str, Any]],
    base: type[Any],
    *,
    explicit: bool = True,
    asynchronous: bool = False,
) -> type[Any]:
    """Make the class of an environment.

    Args:
        name: Name of the environment; the class is called by it, as TRL logs rewards under the class's name.
        listing: Tools exactly as MCP's `tools/list` shows them.
        base: What the class inherits from; its instances hold a `ToolCaller` as `_player`.
        explicit: Whether instances show explicit schemas, or annotated methods.
        asynchronous: Whether the tools are coroutine functions.

    Raises:
        ConfigurationError: See `define_tools`.
    """
    tools = define_tools(listing, base)
    bind = (_bind_async if asynchronous else _bind_explicit) if explicit else _bind_method
    attributes: dict[str, Any] = {identifier: ToolAttribute(tool, bind) for identifier, tool in tools.items()}
    made = ListedClass(_class_name(name), (base,), {**attributes, "_tools": tools, "__module__": __name__})
    return cast("type[Any]", made)


def tools_of(environment_type: type[Any]) -> Mapping[str, ListedTool]:
    """The tools of a class made by `environment_class`, by attribute, in the order of the listing."""
    return vars(environment_type)["_tools"]


def _class_name(name: str) -> str:
    words = SafeNames.of([name], prefix="environment_").safe[name].split("_")
    return "".join(word[:1].upper() + word[1:] for word in words)
