"""Task folders of Harbor as an environment."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from envport import Environment, Solution, Step, Task, TaskSource, ToolError, tool
from envport_envs.harbor.runtime import Machine, runtime_for
from envport_envs.harbor.task_folder import HarborTask, read_task
from envport_envs.lazy_tasks import LazyTasks

__all__ = ["DEFAULT_SECONDS", "HarborEnvironment"]

DEFAULT_SECONDS = 120.0
"""Seconds that a call may take, if nothing else is said."""

_GRACE_SECONDS = 30.0
_COPY_GRACE_SECONDS = 180.0


class HarborEnvironment(Environment):
    """Do a task of Harbor, with a shell, a Python and files.

    When the episode has ended, in whichever way, what is left is copied into a new sandbox, and the task's tests say
    what it is worth.

    Args:
        folder: Where the task folders are.
        names: The names of the task folders; the scheme `harbor:` finds them.
        seconds: Seconds that a call of `bash` or `python` may take. Then it is interrupted, as by Ctrl-C.
        agent_seconds: Seconds that an episode may take; `None` for no limit.
        verifier_seconds: Seconds that the tests of a task may take.
    """

    instructions = "Do the task that the first observation tells, with a shell, a Python and files, and call submit."
    runtime = "process"
    runs_player_code = True

    def __init__(
        self,
        folder: str = ".",
        names: list[str] | None = None,
        seconds: Annotated[float, Field(gt=0, le=3600)] = DEFAULT_SECONDS,
        agent_seconds: float | None = None,
        verifier_seconds: float = 600.0,
    ):
        self._folder = Path(folder)
        self._names = names or []
        self._seconds = seconds
        self.call_seconds = seconds + _GRACE_SECONDS
        self.max_seconds = agent_seconds
        self.score_seconds = verifier_seconds + _COPY_GRACE_SECONDS
        self._machine: Machine | None = None

    def splits(self) -> Mapping[str, TaskSource]:
        """All tasks, as the split `tasks`."""
        return {"tasks": LazyTasks(self._names, self._task)}

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Make the machine of the task."""
        chosen = self._read(self.rng.choice(self._names) if task is None else task.id)
        self._machine = runtime_for(chosen).open(chosen, self.player_code, self._seconds)
        told = "You are in the folder of the task."
        return told if task is not None and task.prompt else f"{chosen.instruction}\n\n{told}"

    @tool(read_only=False, destructive=True, idempotent=False, open_world=False)
    def bash(self, command: str) -> str:
        """Run a command in the shell (bash). Working folder, variables and functions last from one call to the next.

        Args:
            command: One or more commands. Their standard input is empty.
        """
        return self._opened().bash(command)

    @tool(read_only=False, destructive=True, idempotent=False, open_world=False)
    def python(self, code: str) -> str:
        """Run code in the Python interpreter. Variables last from one call to the next.

        Args:
            code: Statements. If the last one is an expression, its value is shown.
        """
        return self._opened().python(code)

    @tool(read_only=True, idempotent=True, open_world=False)
    def read_file(self, path: str) -> str:
        """Read a text file.

        Args:
            path: Its path; a relative one begins at the folder of the task.
        """
        return self._opened().read(path)

    @tool(read_only=False, destructive=True, idempotent=True, open_world=False)
    def write_file(self, path: str, content: str) -> str:
        """Write a text file. Folders are made as needed, and a file that is there is replaced.

        Args:
            path: Its path; a relative one begins at the folder of the task.
            content: Its new content.
        """
        return self._opened().write(path, content)

    @tool(read_only=False, destructive=True, idempotent=False, open_world=False)
    def submit(self) -> Step:
        """Hand the work in as it is. This ends the episode."""
        return Step("Submitted.", terminated=True)

    def score(self) -> float:
        """Run the task's tests on what the player leaves."""
        return self._opened().verify()

    def close(self) -> None:
        """End the machine."""
        if self._machine is not None:
            self._machine.close()

    def legal_calls(self) -> list[tuple[str, dict[str, str]]]:
        """A sample: looking around, a try of each tool, and handing in."""
        return [
            ("bash", {"command": "pwd; ls"}),
            ("bash", {"command": "word=kept; echo $word"}),
            ("python", {"code": "import os\nsorted(os.listdir())"}),
            ("write_file", {"path": "notes.txt", "content": "nothing yet\n"}),
            ("submit", {}),
        ]

    def reference_solution(self, task: Task | None) -> Solution | None:
        """Copy the task's solution to `/solution` and run it there, as Harbor's oracle does."""
        if task is None:
            return None
        chosen = self._read(task.id)
        folder = chosen.solution
        if folder is None:
            return None
        lines = ["mkdir -p /work/solution"]
        for path in sorted(it for it in folder.rglob("*") if it.is_file()):
            there = shlex.quote(f"/solution/{path.relative_to(folder).as_posix()}")
            content = base64.encodebytes(path.read_bytes()).decode("ascii")
            lines.append(f'mkdir -p "$(dirname {there})"\nbase64 -d > {there} <<"END"\n{content}END\nchmod 755 {there}')
        variables = chosen.settings.solution.env.items()
        lines.append(" ".join(["env", *(shlex.quote(f"{k}={v}") for k, v in variables), "bash /solution/solve.sh"]))
        return Solution([("bash", {"command": "\n".join(lines)}), ("submit", {})])

    def _task(self, name: str) -> Task:
        task = self._read(name)
        return Task(id=name, prompt=task.instruction, metadata={"name": task.settings.task.name or name})

    def _read(self, name: str) -> HarborTask:
        if name not in self._names:
            raise ToolError(f"there is no task {name!r}; the tasks are {', '.join(self._names) or 'none'}")
        return read_task(self._folder / name)

    def _opened(self) -> Machine:
        if self._machine is None:
            raise ToolError("the episode has not begun")
        return self._machine
