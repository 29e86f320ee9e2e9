"""envport: an MCP-first gateway for tool environments.

An environment is a class whose typed methods are its tools. Served by the gateway, its tools are MCP tools, and
every session plays an episode of its own.
"""

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
