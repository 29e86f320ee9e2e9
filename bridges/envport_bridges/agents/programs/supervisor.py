"""Runs one command and leaves none of its processes behind. A standalone script that needs only the standard library.

    python supervisor.py WORD...
    python supervisor.py --resident SECONDS DESCRIPTOR WORD...

All processes that the command starts stay descendants of this process. On Linux, orphans become children of the
nearest subreaper, whatever their session or process group. The end of standard input ends the command, so that it
never outlives its caller. The exit code is that of the command, or 128 plus the signal's number if it was killed.

A resident command has the descriptor as its standard input. Our own standard input says when it is idle (`i`) and busy
(`b`): the command is ended after that many idle seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

__all__ = ["main"]

_PR_SET_CHILD_SUBREAPER = 36
_NOT_FOUND = 127
_RESIDENT = "--resident"


def main(words: list[str]) -> int:
    """Run a command until it ends or standard input ends, then kill its remaining processes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    idle_seconds, reads = None, subprocess.DEVNULL
    if words[0] == _RESIDENT:
        idle_seconds, reads, words = float(words[1]), int(words[2]), words[3:]
        os.set_inheritable(reads, False)
    try:
        # The command inherits what was passed to this process. Python closes its own descriptors.
        child = subprocess.Popen(words, stdin=reads, start_new_session=True, close_fds=False)
    except OSError as error:
        print(f"{words[0]} cannot be started: {error.strerror}", file=sys.stderr)
        return _NOT_FOUND
    if idle_seconds is not None:
        _let_go(reads)
    threading.Thread(target=_end_with_input, args=(child.pid, idle_seconds), daemon=True).start()
    code = child.wait()
    _kill_group(child.pid)
    _kill_descendants()
    return code if code >= 0 else 128 - code


def _let_go(reads: int) -> None:
    """Keep no end of what only the command uses, so that our caller notices when the command closes it."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.close(reads)
    os.dup2(nothing, 1)
    os.close(nothing)


def _end_with_input(pid: int, idle_seconds: float | None) -> None:
    idle = False
    while True:
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], idle_seconds if idle else None)
        said = os.read(sys.stdin.fileno(), 64) if ready else b""
        if not said:
            break
        idle = said.endswith(b"i")
    _kill_group(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _kill_descendants() -> None:
    """Kill and reap until no descendant is left. A killed process may just have started another one."""
    while True:
        for pid in _descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The command's name is in brackets and may itself contain brackets, so split at the last one.
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    # Exit at once, because the other thread still waits for input.
    os._exit(code)
