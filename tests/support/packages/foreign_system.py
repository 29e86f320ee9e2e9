"""A scheme of a package of its own: `foreign:COMMAND` or `foreign:http://...` is a program or page that lists tools.

It is looked at once, when the reference is loaded, and played by an environment that is given what was found.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from typing import Any

import httpx2

from envport import Environment, Task, ToolDefinition
from envport.errors import ConfigurationError
from envport.registry import EnvironmentDefinition


async def foreign(rest: str, /, *, greeting: str = "Hello", loud: bool = False) -> EnvironmentDefinition:
    tools = await (_fetched(rest) if rest.startswith("http") else _printed(rest))
    options = {"source": rest, "greeting": greeting, "loud": loud}
    return EnvironmentDefinition("foreign", ForeignEnvironment, options, {"tools": tools})


async def _printed(command: str) -> list[str]:
    program, *words = shlex.split(command)
    process = await asyncio.create_subprocess_exec(program, *words, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    if process.returncode:
        raise ConfigurationError(f"foreign: {command!r} ended with {process.returncode}")
    return json.loads(printed)


async def _fetched(address: str) -> list[str]:
    async with httpx2.AsyncClient() as client:
        return (await client.get(address)).json()


class ForeignEnvironment(Environment):
    """A foreign system."""

    def __init__(self, source: str, tools: list[str], greeting: str = "Hello", loud: bool = False):
        self.source = source
        self.greeting = greeting.upper() if loud else greeting
        self.tools = tools

    def reset(self, *, seed: int, task: Task | None) -> str:
        return f"{self.greeting} from {self.source}"

    def tool_definitions(self) -> list[ToolDefinition]:
        schema = {"type": "object", "properties": {}}
        return [ToolDefinition(name, schema, "use", f"Use {name}.") for name in self.tools]

    def use(self, name: str, arguments: dict[str, Any]) -> str:
        return f"used {name}"
