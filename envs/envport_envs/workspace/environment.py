"""The environment `workspace`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from envport import Environment, PlayerLimits, Solution, Step, Task, TaskSource, ToolError, tool
from envport.types import LegalCall
from envport_envs.workspace.cheats import cheats_of
from envport_envs.workspace.hidden import SECONDS
from envport_envs.workspace.tasks import KINDS, NUMBERS, exercise_of, splits
from envport_envs.workspace.terminal import MOST_SHOWN, Terminal

__all__ = ["WorkspaceEnvironment"]

# Extra time for ending a call that has exceeded its time limit.
_GRACE_SECONDS = 30.0
_LARGEST_FILE = 2**20


class WorkspaceEnvironment(Environment):
    """Solve a task with a shell, a Python and files, for a reward of 1.

    The shell and the interpreter keep their state from one call to the next. All runs in a sandbox of the episode,
    without network. Between calls, what runs in the background stands still.

    When the episode has ended, in whichever way, the file that the task asks for is taken out, and hidden tests run it
    in a new sandbox. They compare what it gives, in the environment's process, with what they expect. The reward is 1
    if all is right, and 0 otherwise.

    A task is an exercise by its kind and number. The kinds are `function` (write one), `repair` (a program) and
    `pipeline` (make a report of a log). Each is a split, in which tasks get harder, from level 1 to 6. Every fifth
    exercise is held out of them and belongs to `test`. Played without a task, the seed chooses the exercise.

    Args:
        seconds: Seconds that a call of `bash` or `python` may take. Then it is interrupted, as by Ctrl-C.
    """

    instructions = "Solve the task that the first observation tells, with a shell, a Python and files, and call submit."
    runtime = "process"
    runs_player_code = True
    max_steps = 200
    score_seconds = 2 * SECONDS

    def __init__(self, seconds: Annotated[float, Field(gt=0, le=600)] = 30.0):
        self._seconds = seconds
        self.call_seconds = seconds + _GRACE_SECONDS

    def splits(self) -> Mapping[str, TaskSource]:
        """A split for each kind of exercise, and `test` with held-out exercises of all kinds."""
        return splits()

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Make the sandbox, with the files of the exercise."""
        chosen = {"kind": self.rng.choice([*KINDS]), "number": self.rng.randrange(NUMBERS)}
        self._exercise = exercise_of(chosen if task is None else task.metadata)
        limits = PlayerLimits(output_bytes=MOST_SHOWN)
        self._sandbox = self.player_code.workspace(limits=limits)
        self._sandbox.write(self._exercise.files)
        self._terminal = Terminal(self._sandbox, self._seconds)
        files = ", ".join(self._exercise.files) or "no file"
        told = f"Your working folder is /work. It has {files}."
        return told if task is not None and task.prompt else f"{self._exercise.prompt}\n\n{told}"

    @tool(read_only=False, destructive=True, idempotent=False, open_world=False)
    def bash(self, command: str) -> str:
        """Run a command in the shell (bash). Working folder, variables and functions last from one call to the next.

        Args:
            command: One or more commands. Their standard input is empty.
        """
        return self._terminal.bash(command)

    @tool(read_only=False, destructive=True, idempotent=False, open_world=False)
    def python(self, code: str) -> str:
        """Run code in the Python interpreter. Variables last from one call to the next.

        Args:
            code: Statements. If the last one is an expression, its value is shown.
        """
        return self._terminal.python(code)

    @tool(read_only=True, idempotent=True, open_world=False)
    def read_file(self, path: str) -> str:
        """Read a text file.

        Args:
            path: Its path; a relative one begins at /work.
        """
        return self._terminal.read(path)

    @tool(read_only=False, destructive=True, idempotent=True, open_world=False)
    def write_file(self, path: str, content: str) -> str:
        """Write a text file. Folders are made as needed, and a file that is there is replaced.

        Args:
            path: Its path; a relative one begins at /work.
            content: Its new content.
        """
        return self._terminal.write(path, content)

    @tool(read_only=False, destructive=True, idempotent=False, open_world=False)
    def submit(self) -> Step:
        """Hand the work in as it is. This ends the episode."""
        return Step("Submitted.", terminated=True)

    def score(self) -> float:
        """Run the hidden tests on what the player leaves."""
        try:
            content = self._sandbox.read(self._exercise.path, _LARGEST_FILE)
        except ToolError:
            return 0.0
        self._sandbox.close()
        original = self._exercise.files.get(self._exercise.path)
        if original is not None and content == original.encode():
            return 0.0
        return float(self._exercise.test.passes(self.player_code, self._exercise.path, content))

    def legal_calls(self) -> list[tuple[str, dict[str, str]]]:
        """A sample: looking around, a try of each tool, and handing in."""
        path = self._exercise.path
        return [
            ("bash", {"command": "pwd; ls"}),
            ("bash", {"command": "word=kept; echo $word"}),
            ("python", {"code": "import os\nsorted(os.listdir())"}),
            ("write_file", {"path": path, "content": "nothing yet\n"}),
            ("write_file", {"path": "notes.txt", "content": "nothing yet\n"}),
            *(("read_file", {"path": name}) for name in self._exercise.files),
            ("submit", {}),
        ]

    def reference_solution(self, task: Task | None) -> Solution | None:
        """Write the file that is judged, and hand it in."""
        if task is None:
            return None
        exercise = exercise_of(task.metadata)
        return Solution([("write_file", {"path": exercise.path, "content": exercise.solution}), ("submit", {})])

    def cheats(self, task: Task | None) -> Mapping[str, Sequence[LegalCall]]:
        """Files that only look right, and what else does not do the task."""
        return cheats_of(exercise_of(task.metadata)) if task is not None else {}
