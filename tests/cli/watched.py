from __future__ import annotations

import logging
import warnings

from envport import Environment, Step, Task, ToolError, tool


class Watched(Environment):
    """Is full of what nobody else may read."""

    runtime = "thread"

    def splits(self) -> dict[str, list[Task]]:
        return {"train": [Task(id="first", prompt="hunter2 in the prompt")]}

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "hunter2 in the first observation"

    @tool
    def say(self, text: str) -> str:
        """Say something."""
        return f"hunter2 and {text}"

    @tool
    def refuse(self) -> str:
        """Refuse."""
        raise ToolError("hunter2 in a refusal")

    @tool
    def crash(self) -> str:
        """Break."""
        raise RuntimeError("hunter2 in an exception")

    @tool
    def note(self, text: str) -> str:
        """Write to the log."""
        logging.getLogger("watched").warning("noted: %s", text)
        return "noted"

    @tool
    def warn(self) -> str:
        """Warn as Python's libraries do."""
        warnings.warn("an odd function", stacklevel=1)
        return "warned"

    @tool
    def finish(self) -> Step[str]:
        """End the task."""
        return Step("hunter2 at last", reward=1.0, terminated=True)
