"""Runs programs that play an episode. They have a time limit, and all of their processes are killed at the end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.abc

from envport_bridges.agents.programs.deadlines import Deadline
from envport_bridges.agents.programs.output import output_pipe

__all__ = ["SUPERVISED", "Ended", "run_bounded"]

# Isolated mode, so that the program's folder and variables cannot change the supervisor.
SUPERVISED = (sys.executable, "-I", "-S", str(Path(__file__).with_name("supervisor.py")))
"""Begins a command line whose program is supervised."""

_MOST_TOLD = 400


@dataclass(frozen=True)
class Ended:
    """How a program, or its mission, ended.

    Attributes:
        code: Its exit code; `None` if it exceeded its time limit. A program that stays has 0 for a mission that it has
            done, and 1 for one that it says has failed.
        output: The end of its standard output and standard error.
        error: How it failed, if it says more than its exit code.
    """

    code: int | None
    output: str
    error: str | None = None

    @property
    def broke(self) -> str | None:
        """How it failed, for people; `None` if it did not, or exceeded its time limit."""
        if self.code is None or (self.code == 0 and self.error is None):
            return None
        return f"{self.error or f'exit code {self.code}'}. The end of its output: {self.last or '(none)'}"

    @property
    def last(self) -> str:
        """The end of its output, for people."""
        return self.output.strip()[-_MOST_TOLD:]


async def run_bounded(
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    limit: float | Deadline,
    pass_fds: Sequence[int] = (),
) -> Ended:
    """Run a program. Kill its process tree when it ends, exceeds its time limit, or this coroutine is cancelled.

    Args:
        words: The program and its arguments.
        cwd: Its working directory.
        env: All of its environment variables.
        limit: Its time limit, or its seconds.
        pass_fds: Descriptors that it inherits, at the same numbers.
    """
    deadline = limit if isinstance(limit, Deadline) else Deadline(limit)
    code: int | None = None
    with output_pipe() as (output, written):
        with written:
            process = await anyio.open_process(
                [*SUPERVISED, *words],
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=written,
                stderr=subprocess.STDOUT,
                # Keep Ctrl-C away from the supervisor, which would end before it has killed the program.
                # We handle Ctrl-C.
                start_new_session=True,
                pass_fds=pass_fds,
            )
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_expire, deadline, tasks.cancel_scope)
                tasks.start_soon(output.follow)
                code = await process.wait()
                # A process that was not killed could keep the pipe open.
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
        output.read()
    return Ended(code, output.text)


async def _expire(deadline: Deadline, scope: anyio.CancelScope) -> None:
    await deadline.used_up()
    scope.cancel()


async def _end(process: anyio.abc.Process) -> None:
    if process.stdin is not None:
        await process.stdin.aclose()
    await process.wait()
