"""An environment whose tasks have tools of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envport import Environment, Step, Task, TaskSource, ToolDefinition, ToolError, tool

TOOLS_OF = {
    "some": ["subtract", "add"],
    "one": ["add"],
    "own": ["add", "open", "peek"],
    "all": ["add", "subtract", "open"],
}
"""The names of the tools that each task lists, in order."""

INDEX_OF = {task: index for index, task in enumerate(TOOLS_OF)}


def _open(door: dict[str, Any]) -> ToolDefinition:
    schema = {"type": "object", "properties": {"door": door}, "required": ["door"]}
    return ToolDefinition("open", schema, "use", "Open a door.")


class Toolbox(Environment):
    """Each task lists other tools."""

    def splits(self) -> dict[str, TaskSource]:
        tasks = [{"id": task, "prompt": f"Do {task}."} for task in TOOLS_OF]
        return {"train": tasks, "broken": [{"id": task} for task in ("raises", "unknown", "empty", "refuses")]}

    def tool_definitions(self) -> list[ToolDefinition]:
        return [_open({"type": "string"})]

    def tools_for(self, task: Task) -> Sequence[str | ToolDefinition] | None:
        match task.id:
            case "all":
                return None
            case "own":
                peek = ToolDefinition("peek", {"type": "object", "properties": {}}, "use", "Peek: „schön“.")
                return ["add", _open({"enum": ["red", "blue"]}), peek]
            case "raises":
                raise RuntimeError("a secret of the environment")
            case "unknown":
                return ["multiply"]
            case "empty":
                return []
            case "refuses":
                raise ToolError("There is no such task.")
            case _:
                return TOOLS_OF.get(task.id, ["add"])

    def reset(self, *, seed: int, task: Task | None) -> str:
        return f"task {task.id if task is not None else None}"

    @tool
    def add(self, a: int, b: int) -> Step[str]:
        """Add two numbers."""
        return Step(str(a + b), reward=1.0, terminated=True)

    @tool
    def subtract(self, a: int, b: int) -> Step[str]:
        """Subtract a number from another one."""
        return Step(str(a - b), reward=0.5, terminated=True)

    def use(self, name: str, arguments: dict[str, Any]) -> str:
        return f"{name} {arguments}"
