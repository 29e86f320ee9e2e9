"""Control groups of Linux, of either version: limits over all processes of an episode, kept by the kernel."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

__all__ = ["ControlGroup", "ControlGroups"]

_CONTROLLERS = ("memory", "pids", "cpuacct")
# The names tell whose they are, so that the groups of a gateway that was killed are found.
_NAME = re.compile(r"envport-(\d+)")
# The kernel counts memory for a group in batches: so much may be missing at the limit.
_TAKEN_AT_ONCE = 2**20


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The control group of one episode.

    Attributes:
        version: Version of the kernel's interface.
        folders: Its folder by controller; with version 2, all are the same.
    """

    version: Literal[1, 2]
    folders: dict[str, Path]

    def limit(self, memory: int | None, processes: int | None) -> None:
        """Set the limits.

        Args:
            memory: Bytes of memory, with shared memory and files in memory.
            processes: How many processes and threads.
        """
        if processes is not None:
            self._write("pids", "pids.max", processes)
        if memory is None:
            return
        if self.version == 2:
            self._write("memory", "memory.max", memory)
            self._write("memory", "memory.oom.group", 1)
            swap = "memory.swap.max", 0
        else:
            self._write("memory", "memory.limit_in_bytes", memory)
            swap = "memory.memsw.limit_in_bytes", memory
        # A kernel that does not count swap has no such file.
        with contextlib.suppress(OSError):
            self._write("memory", *swap)

    def take(self, pid: int) -> None:
        """Move a process into the group; the processes that it starts from now on are born there."""
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text(str(pid))

    def out_of_memory(self) -> bool:
        """Whether the kernel has ended a process of the group because of the limit on memory.

        The kernel also counts a process here that it has ended because the machine, or a group above, had no memory
        left. Then the group has not reached its own limit.
        """
        if self.version == 2:
            return all(self._number("memory", "memory.events", key) > 0 for key in ("oom_kill ", "oom "))
        return self._number("memory", "memory.oom_control", "oom_kill ") > 0 and self._has_reached_its_limit()

    def _has_reached_its_limit(self) -> bool:
        # `memory.failcnt` would say it, but newer kernels no longer count there.
        most, limit = (self._number("memory", f"memory.{it}_in_bytes", "") for it in ("max_usage", "limit"))
        return most > limit - _TAKEN_AT_ONCE

    def cpu_seconds(self) -> float:
        """The CPU time that all processes of the group have taken, those that have ended included."""
        if self.version == 2:
            return self._number("cpuacct", "cpu.stat", "usage_usec ") / 1e6
        return self._number("cpuacct", "cpuacct.usage", "") / 1e9

    def remove(self) -> bool:
        """Remove the group, if its processes are gone. Returns whether nothing of it is left."""
        for folder in set(self.folders.values()):
            with contextlib.suppress(OSError):
                folder.rmdir()
        return not any(folder.exists() for folder in self.folders.values())

    def _write(self, controller: str, file: str, value: int) -> None:
        (self.folders[controller] / file).write_text(str(value))

    def _number(self, controller: str, file: str, key: str) -> int:
        lines = (self.folders[controller] / file).read_text("ascii").splitlines()
        return next((int(line.removeprefix(key)) for line in lines if line.startswith(key)), 0)


class ControlGroups:
    """Makes control groups below that of this process.

    Args:
        version: Version of the kernel's interface.
        parents: Folder of this process's group by controller.

    Raises:
        OSError: This process may make no groups, or a controller is missing.
    """

    def __init__(self, version: Literal[1, 2], parents: dict[str, Path]):
        self.version: Literal[1, 2] = version
        self._numbers = itertools.count()
        self._parents = parents
        self._left: list[ControlGroup] = []
        for parent in set(parents.values()):
            _sweep(parent)
        if version == 2:
            _delegate(parents["memory"])
        # Try one, so that every later error is an exception of its episode alone.
        group = self.make()
        try:
            group.limit(2**40, 2**15)
            group.out_of_memory()
            group.cpu_seconds()
        finally:
            group.remove()

    @classmethod
    @cache
    def find(cls) -> ControlGroups | None:
        """The control groups of this machine; `None` if this process may not make any."""
        for version, parents in _candidates():
            with contextlib.suppress(OSError):
                return cls(version, parents)
        return None

    def make(self) -> ControlGroup:
        """Make a group.

        Raises:
            OSError: The kernel refused.
        """
        name = f"envport-{os.getpid()}-{next(self._numbers)}"
        group = ControlGroup(self.version, {it: parent / name for it, parent in self._parents.items()})
        for folder in set(group.folders.values()):
            folder.mkdir()
        self._left = [it for it in self._left if not it.remove()]
        return group

    def retire(self, group: ControlGroup) -> None:
        """Remove a group, now or as soon as the last of its processes is gone."""
        if not group.remove():
            self._left.append(group)


def _candidates() -> Iterator[tuple[Literal[1, 2], dict[str, Path]]]:
    """Where groups may be made: the folders of this process's own groups, for each version."""
    try:
        own = _own_groups()
    except OSError:
        return
    if all(it in own for it in _CONTROLLERS):
        yield 1, {it: own[it] for it in _CONTROLLERS}
    if "" in own:
        yield 2, dict.fromkeys(_CONTROLLERS, own[""])


def _own_groups() -> dict[str, Path]:
    """The folder of this process's group by controller; version 2 is the one without a name."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    paths = {name: path for _, names, path in lines for name in names.split(",")}
    found: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        head, _, tail = line.partition(" - ")
        _, _, _, top, place, *_ = head.split()
        kind, _, options = tail.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        for name in {""} if kind == "cgroup2" else set(options.split(",")):
            if name in paths and (inside := os.path.relpath(paths[name], top)).split("/")[0] != "..":
                found[name] = Path(place, inside)
    return found


def _delegate(parent: Path) -> None:
    """Let the children of a group of version 2 have limits. For this, it may hold no process itself."""
    wanted = "+memory +pids"
    control = parent / "cgroup.subtree_control"
    if {"memory", "pids"} <= set(control.read_text().split()):
        return
    if not {"memory", "pids"} <= set((parent / "cgroup.controllers").read_text().split()):
        raise OSError(f"{parent} has no controllers for memory and processes")
    own = parent / f"envport-{os.getpid()}"
    own.mkdir(exist_ok=True)
    (own / "cgroup.procs").write_text(str(os.getpid()))
    try:
        control.write_text(wanted)
    except OSError:
        # Others are in the same group.
        (parent / "cgroup.procs").write_text(str(os.getpid()))
        own.rmdir()
        raise


def _sweep(parent: Path) -> None:
    """Remove the groups of gateways that were killed."""
    for folder in parent.glob("envport-*"):
        found = _NAME.match(folder.name)
        if found is not None and not Path(f"/proc/{found[1]}").exists():
            # One that still has processes stays.
            with contextlib.suppress(OSError):
                folder.rmdir()
