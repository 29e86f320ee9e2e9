"""Programs that play an episode: started, bounded in time, and gone at the end with all that they started."""

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
        code: Its exit code; `None` if its time was over.
        output: The end of what it wrote, to standard output and to standard error.
    """

    code: int | None
    output: str


async def run_bounded(words: Sequence[str], *, cwd: Path, env: Mapping[str, str], seconds: float, log: Path) -> Ended:
    """Run a program, and kill its whole process tree when it ends, when its time is over, or when we are cancelled.

    Args:
        words: The program and its arguments.
        cwd: Where it runs.
        env: Its environment variables, all of them.
        seconds: Its time.
        log: File for what it writes. Not a pipe: a process that got away could keep one open.
    """
    # Isolated, so that nothing in the program's folder or variables changes the supervisor.
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
            # Ctrl-C is ours to handle: it would end the supervisor before its work is done.
            start_new_session=True,
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
