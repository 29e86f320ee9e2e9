"""An environment that breaks as it is told. Apart from its tests, whose imports its process would have to repeat."""

from __future__ import annotations

import os
import time
from typing import Literal

from envport import Environment, Task, UpstreamLost, tool

How = Literal["raise", "exit", "hang", "upstream"]


class Breaking(Environment):
    """Breaks as it is told."""

    runtime = "process"
    call_seconds = 2.0

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    @tool
    def break_by(self, how: How) -> str:
        """Break."""
        if how == "exit":
            os._exit(3)
        if how == "hang":
            time.sleep(60)
        raise UpstreamLost("gone") if how == "upstream" else RuntimeError("broken")


class Quick(Breaking):
    """The same in the gateway's own process."""

    runtime = "inline"
