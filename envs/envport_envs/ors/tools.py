"""The tools of an Open Reward Standard server, as it lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from envport import ToolDefinition, UpstreamLost
from envport_envs.ors.server import WHAT

__all__ = ["OrsListing", "definitions_of", "listing_of"]

OrsListing = list[dict[str, Any]]
"""Tools as plain data: `name`, `description` and `input_schema`."""

_NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


def listing_of(answer: Any) -> OrsListing:
    """The tools in an answer to `/tools` or `/task_tools`, with the terminal tool last, if there is one.

    The standard hides the terminal tool from models: whoever runs them calls it with the last thing that the model
    says. A player over MCP has nobody who would, so it calls the tool itself.

    Raises:
        UpstreamLost: It is no listing of the standard.
    """
    said = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    tools: Any = said.get("tools")
    if not isinstance(tools, list):
        raise UpstreamLost(f"the {WHAT} lists no tools")
    found = [_tool(tool) for tool in cast("list[Any]", tools)]
    if (last := said.get("terminal_tool")) is not None:
        found.append(_terminal_tool(last))
    return found


def definitions_of(listing: Sequence[Mapping[str, Any]]) -> list[ToolDefinition]:
    """The tools for players."""
    return [ToolDefinition(tool["name"], tool["input_schema"], "forward", tool["description"]) for tool in listing]


def _tool(tool: Any) -> dict[str, Any]:
    match tool:
        case {"name": str(name)} if name:
            said = cast("dict[str, Any]", tool)
            schema = said.get("input_schema")
            if schema is None or isinstance(schema, dict):
                return _listed(name, said.get("description"), cast("dict[str, Any] | None", schema))
        case _:
            pass
    raise UpstreamLost(f"the {WHAT} lists {tool!r} as a tool")


def _terminal_tool(tool: Any) -> dict[str, Any]:
    match tool:
        case {"name": str(name), "arg": str(argument)} if name and argument:
            schema: dict[str, Any] | None = {
                "type": "object",
                "properties": {argument: {"type": "string"}},
                "required": [argument],
                "additionalProperties": False,
            }
        case {"name": str(name)} if name and cast("dict[str, Any]", tool).get("arg") is None:
            schema = None
        case _:
            raise UpstreamLost(f"the {WHAT} lists {tool!r} as its terminal tool")
    return _listed(name, cast("dict[str, Any]", tool).get("description"), schema)


def _listed(name: str, description: Any, schema: dict[str, Any] | None) -> dict[str, Any]:
    told = description if isinstance(description, str) else ""
    return {"name": name, "description": told, "input_schema": _NOTHING if schema is None else schema}
