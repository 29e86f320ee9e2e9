"""Runs programs that play an episode. They have a time limit, and all of their processes are killed at the end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.abc

__all__ = ["Ended", "run_bounded"]

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_KEPT_BYTES = 16_384


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
        code: Its exit code; `None` if it exceeded its time limit.
        output: The end of its standard output and standard error.
    """

    code: int | None
    output: str


async def run_bounded(
    words: Sequence[str], *, cwd: Path, env: Mapping[str, str], seconds: float, log: Path, pass_fds: Sequence[int] = ()
) -> Ended:
    """Run a program. Kill its process tree when it ends, exceeds its time limit, or this coroutine is cancelled.

    Args:
        words: The program and its arguments.
        cwd: Its working directory.
        env: All of its environment variables.
        seconds: Its time limit.
        log: File for its output. A pipe could be kept open by a process that was not killed.
        pass_fds: Descriptors that it inherits, at the same numbers.
    """
    # Isolated mode, so that the program's folder and variables cannot change the supervisor.
    command = [sys.executable, "-I", "-S", str(_SUPERVISOR), *words]
    code: int | None = None
    with log.open("wb") as sink:
        process = await anyio.open_process(
            command,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            # Keep Ctrl-C away from the supervisor, which would end before it has killed the program. We handle Ctrl-C.
            start_new_session=True,
            pass_fds=pass_fds,
        )
        try:
            with anyio.move_on_after(seconds):
                code = await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
    return Ended(code, _tail(log))


async def _end(process: anyio.abc.Process) -> None:
    if process.stdin is not None:
        await process.stdin.aclose()
    await process.wait()


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _KEPT_BYTES))
        return file.read().decode(errors="replace")
