"""One tool of a listing, in the two forms that TRL can take: the exact schema, and an annotated method."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from envport_bridges.chat import function_schema
from envport_bridges.safe_names import SafeNames
from envport_bridges.trl.annotations import Annotated, annotate
from envport_bridges.trl.arguments import ArgumentSchema

__all__ = ["AsyncExplicitTool", "ExplicitTool", "ListedTool", "ToolCaller"]


class ToolCaller(Protocol):
    """Whoever carries out the tool calls of one environment instance."""

    def call(self, tool: ListedTool, arguments: dict[str, Any]) -> Any:
        """Call a tool and wait for what the model gets to see."""
        ...

    async def call_async(self, tool: ListedTool, arguments: dict[str, Any]) -> Any:
        """The same, for callers with an event loop."""
        ...


@dataclass(frozen=True)
class ListedTool:
    """A tool as the bridge knows it.

    Attributes:
        name: The name that MCP lists, and that the model sees and writes.
        identifier: The attribute of the environment's class; equal to the name where that is possible.
        function: The schema as it is rendered: `{"type": "function", "function": {...}}`. Not to be changed.
        arguments: The check of the arguments.
        parameters: Safe names of the parameters, for the annotated form.
        annotated: Signature, type hints and docstring, for the annotated form.
    """

    name: str
    identifier: str
    function: Mapping[str, Any]
    arguments: ArgumentSchema
    parameters: SafeNames
    annotated: Annotated

    @classmethod
    def of(cls, listed: Mapping[str, Any], identifier: str) -> ListedTool:
        """Read a tool from a listing.

        Args:
            listed: The tool exactly as MCP's `tools/list` shows it.
            identifier: Its attribute name.
        """
        shown = function_schema(listed)
        schema: dict[str, Any] = shown["function"]["parameters"]
        properties = schema.get("properties")
        named = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
        parameters = SafeNames.of(named, prefix="arg_", reserved=("self",))
        description: str = shown["function"]["description"]
        return cls(
            name=str(listed["name"]),
            identifier=identifier,
            function={**shown, "function": {**shown["function"], "parameters": _Verbatim(schema)}},
            arguments=ArgumentSchema(schema),
            parameters=parameters,
            annotated=annotate(description, schema, parameters),
        )

    def require_names(self, positional: Sequence[Any]) -> None:
        """Refuse arguments without names: a listing has no order of them.

        Args:
            positional: The arguments that were given without a name.

        Raises:
            TypeError: There are some.
        """
        if positional:
            names = list(self.parameters.safe) or ["name"]
            raise TypeError(
                f"tool {self.name!r} takes its arguments by name: write {names[0]}={positional[0]!r}, not "
                f"{positional[0]!r} alone; its arguments are: {', '.join(self.parameters.safe) or 'none'}"
            )

    def placeholder(self) -> Callable[..., Any]:
        """A function that stands for the tool on the class, and is the tool where no explicit schema is taken."""

        def method(environment: Any, /, *positional: Any, **arguments: Any) -> Any:
            self.require_names(positional)
            # What the caller left out is not sent: a default of the signature is none of the tool's.
            named = {self.parameters.original.get(name, name): value for name, value in arguments.items()}
            return cast("ToolCaller", vars(environment)["_player"]).call(self, named)

        function = cast("Any", method)
        function.__name__ = function.__qualname__ = self.identifier
        function.__doc__ = self.annotated.docstring
        function.__annotations__ = dict(self.annotated.annotations)
        function.__signature__ = self.annotated.signature
        return function


class _Verbatim(dict[str, Any]):
    """A schema that renders as it is, but whose properties transformers does not find when it casts arguments.

    It would cast by what stands in `properties` alone, blind to `$ref` and the like; see `readings`.
    """

    def get(self, key: str, default: Any = None) -> Any:
        return default if key == "properties" else super().get(key, default)


class ExplicitTool(dict[str, Any]):
    """A tool bound to an environment instance: a schema to whoever renders it, a function to whoever calls it.

    TRL hands it to `apply_chat_template` and `parse_response`, which take a dict as the schema that it is, and calls
    it by its `__name__` with the arguments that the model wrote.
    """

    def __init__(self, definition: ListedTool, environment: Any):
        super().__init__(definition.function)
        self.__name__ = definition.name
        self._definition = definition
        # An environment that nobody holds is released, and with it the episode that the tool belongs to.
        self._environment = environment
        self._player: ToolCaller = vars(environment)["_player"]

    def __call__(self, /, *positional: Any, **arguments: Any) -> Any:
        """Call the tool."""
        self._definition.require_names(positional)
        return self._player.call(self._definition, arguments)


async def _coroutine_function() -> None:
    """Lends its code object to `AsyncExplicitTool`."""


class AsyncExplicitTool(ExplicitTool):
    """An `ExplicitTool` that is a coroutine function to `inspect.iscoroutinefunction`."""

    # What `inspect` looks at in an object that quacks like a function.
    __code__: types.CodeType = _coroutine_function.__code__
    __defaults__ = None
    __kwdefaults__ = None

    def __init__(self, definition: ListedTool, environment: Any):
        super().__init__(definition, environment)
        self.__annotations__ = {}

    async def __call__(self, /, *positional: Any, **arguments: Any) -> Any:
        """Call the tool."""
        self._definition.require_names(positional)
        return await self._player.call_async(self._definition, arguments)
