"""What the processes of an episode use, measured over the whole tree: by the kernel's control groups, or by looking."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from envport.errors import WorkerLost
from envport.runtimes.base import Bounds
from envport.runtimes.cgroups import ControlGroups

__all__ = ["Allowance", "GroupMeter", "Meter", "TreeMeter"]

_TICKS = os.sysconf("SC_CLK_TCK")
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Allowance:
    """What all processes of an episode may use together; `None` for no limit.

    Attributes:
        memory: Bytes of memory, without what all episodes of the environment share.
        cpu_seconds: CPU time.
        processes: Processes and threads.
    """

    memory: int | None = None
    cpu_seconds: float | None = None
    processes: int | None = None

    @classmethod
    def of(cls, bounds: Bounds) -> Allowance | None:
        """The allowance of an episode; `None` if nothing is limited."""
        memory = int(bounds.memory_mb * 2**20) if bounds.memory_mb is not None else None
        found = cls(memory, bounds.cpu_seconds, bounds.max_processes)
        return found if found != cls() else None

    def lost_memory(self) -> WorkerLost:
        """The error of an episode that took too much memory."""
        limit = (self.memory or 0) / 2**20
        return WorkerLost(f"The episode took more memory than its limit of {limit:g} MiB.", "out_of_memory")

    def lost_time(self) -> WorkerLost:
        """The error of an episode that took too much CPU time."""
        return WorkerLost(f"The episode took more CPU time than its limit of {self.cpu_seconds:g} s.", "deadline")

    def lost_processes(self) -> WorkerLost:
        """The error of an episode that started too many processes."""
        return WorkerLost(f"The episode had more processes than its limit of {self.processes}.")


class Meter(Protocol):
    """Measures what the processes of an episode use."""

    def over(self) -> WorkerLost | None:
        """The error of a limit that was exceeded; `None` if none was."""
        ...

    def close(self) -> None:
        """Release what measuring needs. The processes are gone."""
        ...


class GroupMeter:
    """Measures by a control group. The kernel itself keeps the limits on memory and processes.

    Args:
        groups: Makes the group.
        pid: The process at the top, which has started no other one yet.
        allowance: What the processes may use.

    Raises:
        OSError: The kernel refused.
    """

    def __init__(self, groups: ControlGroups, pid: int, allowance: Allowance):
        self._groups = groups
        self._group = groups.make()
        self._allowance = allowance
        try:
            self._group.limit(allowance.memory, allowance.processes)
            self._group.take(pid)
        except OSError:
            self._group.remove()
            raise

    def over(self) -> WorkerLost | None:
        """The error of a limit that was exceeded; `None` if none was."""
        most = self._allowance.cpu_seconds
        with contextlib.suppress(OSError):
            if self._allowance.memory is not None and self._group.out_of_memory():
                return self._allowance.lost_memory()
            if most is not None and self._group.cpu_seconds() > most:
                return self._allowance.lost_time()
        return None

    def close(self) -> None:
        """Remove the group."""
        self._groups.retire(self._group)


class TreeMeter:
    """Measures by looking at every process of the tree in `/proc`.

    It does not see memory that no process has mapped: files in memory (`memfd_create`, and outside of a sandbox those
    in `/dev/shm`), and System V segments.

    Args:
        pid: The process at the top.
        shared: Bytes of memory that it has in common with all episodes of the environment.
        allowance: What the processes may use.
    """

    def __init__(self, pid: int, shared: int, allowance: Allowance):
        self._pid = pid
        self._shared = shared
        self._allowance = allowance

    def over(self) -> WorkerLost | None:
        """The error of a limit that was exceeded; `None` if none was."""
        allowance, pids = self._allowance, _tree(self._pid)
        if allowance.memory is not None and self._takes_more(pids, allowance.memory):
            return allowance.lost_memory()
        if allowance.cpu_seconds is not None and sum(map(_cpu_seconds, pids)) > allowance.cpu_seconds:
            return allowance.lost_time()
        if allowance.processes is not None and sum(map(_threads, pids)) > allowance.processes:
            return allowance.lost_processes()
        return None

    def close(self) -> None:
        """Nothing is held."""

    def _takes_more(self, pids: list[int], most: int) -> bool:
        # Count shared pages for each process first, which is cheap. Only if that is too much, count each page once.
        if self._memory(pids, "status", "RssAnon:", "RssShmem:") <= most:
            return False
        return self._memory(pids, "smaps_rollup", "Pss_Anon:", "Pss_Shmem:") > most

    def _memory(self, pids: list[int], file: str, private: str, shared: str) -> int:
        own = in_memory = 0
        for pid in pids:
            found = _kilobytes(pid, file)
            own += found.get(private, 0)
            in_memory += found.get(shared, 0)
        return max(0, own - self._shared) + max(in_memory, _written(self._pid))


def _tree(pid: int) -> list[int]:
    """The process and everything below it."""
    found = [pid]
    for above in found:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{above}/task"):
                found += map(int, Path(f"/proc/{above}/task/{thread}/children").read_text("ascii").split())
    return found


def _kilobytes(pid: int, file: str) -> dict[str, int]:
    """The fields of a file of `/proc` that are in kB, as bytes."""
    try:
        lines = [line.split() for line in Path(f"/proc/{pid}/{file}").read_text("utf-8", "replace").splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) * _KIB for line in lines if line[-1:] == ["kB"]}


def _written(pid: int) -> int:
    """Bytes of files in the `/tmp` of a sandbox, which are in memory. 0 where the process is in none."""
    with contextlib.suppress(OSError):
        if not os.path.samestat(os.stat(f"/proc/{pid}/root"), os.stat("/")):
            found = os.statvfs(f"/proc/{pid}/root/tmp")
            return (found.f_blocks - found.f_bfree) * found.f_frsize
    return 0


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ["0"] * 50


def _cpu_seconds(pid: int) -> float:
    """The CPU time of a process and of its children that have ended (fields 14 to 17 of proc(5), from the third)."""
    return sum(map(int, _stat(pid)[11:15])) / _TICKS


def _threads(pid: int) -> int:
    return int(_stat(pid)[17])
