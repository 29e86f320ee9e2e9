"""The tools that are listed at the address of an environment, where players start episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from envport.definition import EnvironmentDefinition
from envport.environment import ToolHints
from envport.tools.toolset import EPISODE_ID, START_EPISODE

__all__ = ["start_episode_tool", "with_episode_id"]


def start_episode_tool(spec: EnvironmentDefinition, idle_seconds: float) -> dict[str, Any]:
    """The tool with which a player starts an episode, in wire form.

    Args:
        spec: The environment.
        idle_seconds: Seconds without a call after which an episode expires.
    """
    properties: dict[str, Any] = {}
    if splits := list(spec.splits):
        properties["split"] = {
            "type": "string",
            "enum": splits,
            "description": f"The collection of tasks to choose from; {splits[0]} if not given.",
        }
        properties["task"] = {
            "type": "integer",
            "minimum": 0,
            "description": "Index of the task in the split; the seed chooses one if not given.",
        }
    properties["seed"] = {
        "type": "integer",
        "minimum": 0,
        "maximum": 2**53 - 1,
        "description": "The same task and seed give the same episode; random if not given.",
    }
    return {
        "name": START_EPISODE,
        "description": (
            f"Start a new episode of {spec.name}. Returns an {EPISODE_ID}, to be passed in every other call, and the "
            f"first observation. The episode expires after {idle_seconds / 60:g} minutes without a call."
        ),
        "inputSchema": {"type": "object", "properties": properties, "additionalProperties": False},
        "annotations": ToolHints(read_only=False, destructive=False, open_world=False).annotations(),
    }


def with_episode_id(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool of an environment, in wire form, with the argument that names the episode."""
    schema = cast("dict[str, Any]", tool["inputSchema"])
    handle = {"type": "string", "description": f"The {EPISODE_ID} that {START_EPISODE} returned."}
    return {**tool, "inputSchema": {**schema, "properties": {**schema["properties"], EPISODE_ID: handle}}}
