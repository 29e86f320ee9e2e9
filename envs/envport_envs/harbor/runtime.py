"""The seam behind which tasks are run: in this project's sandbox, or in containers by a package that fills it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Protocol

from envport import PlayerCode
from envport.errors import ConfigurationError
from envport_envs.harbor.sandbox import SandboxRuntime
from envport_envs.harbor.task_folder import HarborTask

__all__ = ["GROUP", "HarborRuntime", "Machine", "refusal", "runtime_for"]

GROUP = "envport.harbor_runtimes"
"""Entry point group of further runtimes. An entry point names a class with the Protocol `HarborRuntime`."""


class Machine(Protocol):
    """The machine of one episode. What it refuses the player, it refuses with a `ToolError`."""

    def bash(self, command: str) -> str:
        """Run a command in the shell, whose state lasts. Returns what it wrote and how it ended."""
        ...

    def python(self, code: str) -> str:
        """Run code in the interpreter, whose state lasts. Returns what it wrote and how it ended."""
        ...

    def read(self, path: str) -> str:
        """The text of a file."""
        ...

    def write(self, path: str, content: str) -> str:
        """Write a file, and say so."""
        ...

    def verify(self) -> float:
        """Run the task's tests on what the player leaves, and return the reward. Called once, at the end."""
        ...

    def close(self) -> None:
        """End the machine."""
        ...


class HarborRuntime(Protocol):
    """Runs tasks."""

    def refusal(self, task: HarborTask) -> str | None:
        """Why it cannot run a task; `None` if it can."""
        ...

    def open(self, task: HarborTask, player_code: PlayerCode, seconds: float) -> Machine:
        """Make the machine of an episode.

        Args:
            task: The task.
            player_code: Makes sandboxes for this episode.
            seconds: Seconds that a call may take.

        Raises:
            UpstreamLost: It cannot be made now.
        """
        ...


def refusal(task: HarborTask) -> str | None:
    """Why no runtime can run a task; `None` if one can."""
    reasons: list[str] = []
    for runtime in _runtimes():
        if (reason := runtime.refusal(task)) is None:
            return None
        reasons.append(reason)
    return "; ".join(reasons)


def runtime_for(task: HarborTask) -> HarborRuntime:
    """The first runtime that can run a task: the sandbox, or one that an installed package registers.

    Raises:
        ConfigurationError: None can; the message says why.
    """
    for runtime in _runtimes():
        if runtime.refusal(task) is None:
            return runtime
    raise ConfigurationError(f"harbor task {task.name!r} cannot be run: {refusal(task)}")


def _runtimes() -> Sequence[HarborRuntime]:
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return [SandboxRuntime(), *(point.load()() for point in points)]
