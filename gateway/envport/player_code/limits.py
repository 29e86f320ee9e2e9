"""What the programs of a player's sandbox may use, and what they use. On the player's side of the wall."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Any

WORK = "/work"

_OPEN_FILES = 256
_WRITABLE = (WORK, "/tmp", "/dev/shm")
# What the kernel keeps of a file on a tmpfs: its inode, its name, and the target of a short link.
_NODE_BYTES = 1_536


class ProgramLimits:
    """What all programs of the sandbox may use together.

    Args:
        settings: The limits by name.
    """

    def __init__(self, settings: dict[str, Any]):
        self.memory = int(settings["memory"])
        self.file = int(settings["disk"])
        self.processes = int(settings["processes"])
        self.output = int(settings["output"])

    def bind(self) -> None:
        """Bind the calling process and all that it starts."""
        # One more: this process counts too.
        _limit(resource.RLIMIT_NPROC, self.processes + 1)
        _limit(resource.RLIMIT_DATA, self.memory)
        _limit(resource.RLIMIT_FSIZE, self.file)
        _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
        _limit(resource.RLIMIT_CORE, 0)

    def exceeded(self) -> str | None:
        """The limit that all processes together exceed: `memory` or `processes`."""
        used = _shared_memory() + _memory_of_nodes()
        pids = [entry for entry in os.listdir("/proc") if entry.isdigit() and entry != "1"]
        if len(pids) > self.processes:
            return "processes"
        for pid in pids:
            used += _memory_of(pid)
        return "memory" if used > self.memory else None


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _memory_of(pid: str) -> int:
    """Bytes of memory of a process. What it shares with others is divided by their number."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        return next((int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:")), 0)
    return 0


def _shared_memory() -> int:
    """Bytes of System V shared memory, which stays when its processes end."""
    try:
        with open("/proc/sysvipc/shm", "rb") as file:
            next(file)
            return sum(int(line.split()[14]) for line in file)
    except (OSError, ValueError, IndexError, StopIteration):
        return 0


def _memory_of_nodes() -> int:
    """Bytes of memory that the files themselves take, beside their content. The disk limit counts only that."""
    used = 0
    for folder in _WRITABLE:
        with contextlib.suppress(OSError):
            state = os.statvfs(folder)
            used += (state.f_files - state.f_ffree) * _NODE_BYTES
    return used
