"""envport: an MCP-first gateway for tool environments.

An environment is a class whose typed methods are its tools. Served by the gateway, its tools are MCP tools, and
every session plays an episode of its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envport.client import AsyncClient, Client
    from envport.environment import Environment, Progress, Solution, TaskSource, ToolDefinition, ToolHints, tool
    from envport.errors import EnvportError, ToolError, UpstreamLost
    from envport.player_code import KeptProgram, PlayerCode, PlayerLimits, PlayerRun, Workspace
    from envport.types import Observation, Step, Task

__all__ = [
    "AsyncClient",
    "Client",
    "Environment",
    "EnvportError",
    "KeptProgram",
    "Observation",
    "PlayerCode",
    "PlayerLimits",
    "PlayerRun",
    "Progress",
    "Solution",
    "Step",
    "Task",
    "TaskSource",
    "ToolDefinition",
    "ToolError",
    "ToolHints",
    "UpstreamLost",
    "Workspace",
    "tool",
]

# This file belongs to the distribution `envport-client`, which has only the first three of these modules.
_HOMES = {
    "envport.client": ("AsyncClient", "Client"),
    "envport.errors": ("EnvportError", "ToolError", "UpstreamLost"),
    "envport.types": ("Observation", "Step", "Task"),
    "envport.environment": (
        "Environment",
        "Progress",
        "Solution",
        "TaskSource",
        "ToolDefinition",
        "ToolHints",
        "tool",
    ),
    "envport.player_code": ("KeptProgram", "PlayerCode", "PlayerLimits", "PlayerRun", "Workspace"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(module), name)
    except ModuleNotFoundError as missing:
        if missing.name != module:
            raise
        raise ImportError(
            f"envport.{name} is part of the distribution envport, and only envport-client is installed: "
            "pip install envport"
        ) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
