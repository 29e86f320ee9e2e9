"""What an environment may have beside tools, for clusters: hosts load this file by its path."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from envport import Environment, Task, TaskSource, tool
from envport.types import LegalCall


class Features(Environment):
    """Has tools for each task, legal calls, secrets, something prepared, and runs the player's code."""

    runtime = "process"
    runs_player_code = True

    @contextmanager
    def prepare(self) -> Generator[dict[str, int]]:
        yield {"host": os.getpid()}

    def splits(self) -> dict[str, TaskSource]:
        return {"train": [{"id": "run"}, {"id": "count"}]}

    def tools_for(self, task: Task) -> Sequence[str]:
        return [task.id, "look"]

    def reset(self, *, seed: int, task: Task | None) -> str:
        self._count = 0
        return "ready"

    def legal_calls(self) -> list[LegalCall]:
        return [("count", {"up_to": self._count + 1})]

    @tool
    def look(self) -> str:
        """Say what it has."""
        return json.dumps({"secret": len(self.secrets.get("KEY", "")), **self.prepared})

    @tool
    def count(self, up_to: int) -> str:
        """Count."""
        self._count = up_to
        return str(up_to)

    @tool
    def run(self, code: str) -> str:
        """Run Python."""
        return self.player_code.run(["python3", "-"], stdin=code, timeout=30).stdout
