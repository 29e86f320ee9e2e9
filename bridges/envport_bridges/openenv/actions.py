"""OpenEnv's actions: each calls a tool, or lists the tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from envport_bridges.openenv.frames import OpenEnvError

__all__ = ["CalledTool", "action_schema", "called", "listed", "lists_tools"]

CalledTool = tuple[str, dict[str, Any]]
"""The name of a tool, and the arguments."""

_CALL, _LIST = "call_tool", "list_tools"
# Every action of OpenEnv has them; they are for its own server.
_METADATA = "metadata"


def lists_tools(action: Mapping[str, Any]) -> bool:
    """Whether an action asks for the tools."""
    return action.get("type") == _LIST and set(action) <= {"type", _METADATA}


def called(action: Mapping[str, Any], tools: Sequence[str]) -> CalledTool:
    """What an action calls.

    Args:
        action: `{"type": "call_tool", "tool_name", "arguments"}`, where `type` may be left out; or, if there is one
            tool only, its arguments.
        tools: Names of the tools.

    Raises:
        OpenEnvError: It is neither.
    """
    fields = {key: value for key, value in action.items() if key != _METADATA}
    if "tool_name" in fields and fields.get("type", _CALL) == _CALL:
        name, arguments = fields["tool_name"], fields.get("arguments", {})
        if type(name) is not str or type(arguments) is not dict or set(fields) - {"type", "tool_name", "arguments"}:
            raise _malformed("tool_name has to be text, arguments an object, and there is nothing else", tools)
        return name, cast("dict[str, Any]", arguments)
    if len(tools) == 1 and fields.get("type") not in (_CALL, _LIST):
        return tools[0], fields
    raise _malformed(f"an action has to name a tool, and this one has {', '.join(sorted(fields)) or 'nothing'}", tools)


def _malformed(what: str, tools: Sequence[str]) -> OpenEnvError:
    form = '{"type": "call_tool", "tool_name": ..., "arguments": {...}}'
    return OpenEnvError("VALIDATION_ERROR", f"{what}. Allowed: {form}; the tools are {', '.join(tools)}")


def listed(listing: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tools in OpenEnv's form. Their schemas are those that MCP lists."""
    return [
        {"name": tool["name"], "description": tool.get("description") or "", "input_schema": tool["inputSchema"]}
        for tool in listing
    ]


def action_schema(listing: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The JSON Schema of all actions."""
    calls = [
        {
            "type": "object",
            "properties": {
                "type": {"const": _CALL},
                "tool_name": {"const": tool["name"]},
                "arguments": _own(tool["name"], tool["inputSchema"]),
            },
            "required": ["tool_name", "arguments"],
        }
        for tool in listing
    ]
    plain = [_own(f"{tool['name']}-arguments", tool["inputSchema"]) for tool in listing] if len(listing) == 1 else []
    return {
        "anyOf": [*calls, *plain, {"type": "object", "properties": {"type": {"const": _LIST}}, "required": ["type"]}]
    }


def _own(name: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema, whose references stay within it also as a part of another one."""
    return {"$id": f"urn:tool:{name}", **schema} if "$defs" in schema else schema
