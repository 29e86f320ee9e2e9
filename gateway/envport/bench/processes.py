"""Processes of the benchmark: starts them, and reads their resource use from the kernel."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from envport.errors import ConfigurationError

__all__ = ["Process", "below", "cpu_seconds", "memory_kb", "python_module", "require_linux"]


def python_module() -> tuple[str, ...]:
    """What runs a module with this Python."""
    return (sys.executable, "-m")


def require_linux() -> None:
    """Check that the kernel reports the resource use of other processes.

    Raises:
        ConfigurationError: This is not Linux.
    """
    if not Path("/proc/self/smaps_rollup").exists():
        raise ConfigurationError("the bench reads CPU and memory from Linux's /proc, which is not here")


def cpu_seconds(pid: int) -> float:
    """CPU time that all threads of a process have used so far, user and system.

    It is read from the process's CPU clock (clock_getcpuclockid(3)), because /proc/PID/stat has steps of 10 ms.
    """
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e9


def memory_kb(pid: int) -> float:
    """Unique set size (USS) of a process in KiB: the memory that it shares with no other process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    return float(sum(int(line.split()[1]) for line in lines if line.startswith("Private_")))


def below(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have started."""
    found = [pid]
    for above in found:
        for children in Path(f"/proc/{above}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, children.read_text("ascii").split())
    return found[1:]


class Process:
    """A module of the benchmark in its own process. It reads requests and writes answers, one line each.

    Args:
        module: The module to run.
        *args: Its arguments.
        interpreter: What runs it: this Python, unless given.
        variables: Its environment; ours, unless given.
    """

    def __init__(
        self,
        module: str,
        *args: str,
        interpreter: Sequence[str] = python_module(),
        variables: Mapping[str, str] | None = None,
    ):
        self._name = " ".join((module, *args))
        # A new session keeps Ctrl-C away from it. Ctrl-C ends the benchmark, which then ends its processes.
        self._process = subprocess.Popen(
            [*interpreter, module, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=variables,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, line: str) -> str:
        """Send a line and wait for the answer."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        return self.read()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it by SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def read(self) -> str:
        """Wait for a line.

        Raises:
            RuntimeError: The process ended instead; its message is on standard error.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name} ended with exit code {self._process.wait()}")
        return line.strip()

    def __enter__(self) -> Self:
        """Return the process itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the process. It stops when its standard input ends; if it does not, it is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
