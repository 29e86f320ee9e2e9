"""Environments that report progress from defined tools, and that refuse with more than words."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from envport import Environment, Progress, Task, TaskSource, ToolDefinition, ToolError, tool

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def _defined(name: str) -> ToolDefinition:
    return ToolDefinition(name, {"type": "object", "properties": {"steps": {"type": "integer"}}}, "work", "Work.")


class Telling(Environment):
    """Tells what it does, and what is in the way."""

    def tool_definitions(self) -> list[ToolDefinition]:
        return [_defined("toil")]

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    def work(self, name: str, arguments: dict[str, Any], report: Progress) -> str:
        for step in range(arguments["steps"]):
            report(step + 1, arguments["steps"])
        return f"{name} {arguments}"

    @tool
    def refuse(self) -> str:
        """Refuse in words and in a picture."""
        raise ToolError("The door is locked.", content=[PNG, "See the lock?"])

    @tool
    def refuse_badly(self) -> str:
        """Refuse with what nobody can be shown."""
        raise ToolError("No.", content=object())


class TellingByTask(Telling):
    """The task has the tool."""

    def tool_definitions(self) -> list[ToolDefinition]:
        return []

    def splits(self) -> dict[str, TaskSource]:
        return {"train": [{"id": "a"}]}

    def tools_for(self, task: Task) -> Sequence[str | ToolDefinition]:
        return [_defined("toil"), "refuse"]
