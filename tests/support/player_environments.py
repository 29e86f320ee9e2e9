"""Environments that run the player's code."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

from patience import patient

from envport import Environment, PlayerLimits, Step, Workspace, tool

ANSWER = "forty-two-thousand-and-one"


class Coder(Environment):
    """Solve the task by running code."""

    runtime = "process"
    runs_player_code = True

    def reset(self, *, seed: int, task: Any) -> str:
        self.answer = ANSWER
        self.kept: Workspace | None = None
        return f"{os.getpid()} {os.getppid()}"

    @tool
    def run(self, code: str, timeout: float = 20.0) -> dict[str, Any]:
        """Run Python."""
        return _shown(self.player_code.run(["python3", "main.py"], files={"main.py": code}, timeout=timeout))

    @tool
    def small(self, code: str) -> dict[str, Any]:
        """Run Python with little memory, few processes and little disk."""
        limits = PlayerLimits(memory_mb=64, processes=12, disk_mb=4, output_bytes=1_000)
        return _shown(self.player_code.run(["python3", "-c", code], limits=limits, timeout=20.0))

    @tool
    def start(self, argv: list[str], stdin: str = "") -> dict[str, Any]:
        """Run a program."""
        return _shown(self.player_code.run(argv, stdin=stdin))

    @tool
    def keep(self, argv: list[str], write: dict[str, str] | None = None) -> dict[str, Any]:
        """Run a program in the folder that stays."""
        if self.kept is None:
            self.kept = self.player_code.workspace()
        return _shown(self.kept.run(argv, files=write))

    @tool
    def take(self, path: str, most: int | None = 100) -> str:
        """Read a file of the folder that stays."""
        assert self.kept is not None
        return (self.kept.read(path) if most is None else self.kept.read(path, most=most)).decode()

    @tool
    def own(self, how: str) -> str:
        """The environment itself fails, while code of the player runs beside it or not."""
        if how == "hang":
            threading.Event().wait()
        if how == "crash beside":
            threading.Timer(0.5, lambda: ctypes.string_at(0)).start()
            self.player_code.run(["sleep", "100"], timeout=100)
        if how == "raise beside":
            threading.Timer(0.5, lambda: os._exit(3)).start()
            self.player_code.run(["sleep", "100"], timeout=100)
        return "still here"

    @tool
    def submit(self, answer: str) -> Step[str]:
        """Give the answer."""
        return Step("Done.", reward=float(answer == self.answer), terminated=True)


class SandboxedCoder(Coder):
    """The environment itself is in a sandbox."""

    sandbox = True


class Hasty(Coder):
    """Its calls may take less than its player's code."""

    call_seconds = patient(1.5)

    @tool
    def earn(self) -> Step[str]:
        """Get some of the reward."""
        return Step("Half of it.", reward=1.5)


class SlowToBegin(Coder):
    """Runs something before its player has done anything."""

    def reset(self, *, seed: int, task: Any) -> str:
        return str(self.player_code.run(["sleep", "1000"], timeout=1000.0))


class AsyncCoder(Coder):
    """The same, as an async environment."""

    @tool
    async def run(self, code: str, timeout: float = 20.0) -> dict[str, Any]:  # noqa: ASYNC109
        """Run Python."""
        files = {"main.py": code}
        return _shown(await self.player_code.run_async(["python3", "main.py"], files=files, timeout=timeout))


class ThreadedCoder(Coder):
    """The same, in the gateway's threads."""

    runtime = "thread"


class ThreadedAsyncCoder(AsyncCoder):
    """The same, in the gateway's event loop."""

    runtime = "thread"


class Unable(Environment):
    """Runs the player's code, and has not said so."""

    runtime = "process"

    def reset(self, *, seed: int, task: Any) -> str:
        return ""

    @tool
    def run(self) -> str:
        """Run something."""
        return str(self.player_code.run(["true"]))


def _shown(run: Any) -> dict[str, Any]:
    return {
        "code": run.exit_code,
        "signal": run.signal,
        "out": run.stdout,
        "err": run.stderr,
        "late": run.timed_out,
        "memory": run.out_of_memory,
        "processes": run.too_many_processes,
        "cut": run.output_cut,
    }


@contextlib.contextmanager
def listening() -> Any:
    """Sockets of this machine: TCP, and one with a name in the abstract namespace."""
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        name = f"envport-test-{os.getpid()}"
        unix.bind(f"\0{name}")
        unix.listen()
        yield tcp.getsockname()[1], name


def kill(pid: int) -> None:
    """Kill a process of this machine."""
    os.kill(pid, signal.SIGKILL)


HERE = str(Path(__file__).resolve())
