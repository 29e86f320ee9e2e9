"""Environments that load a runtime in different ways."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import time
from typing import Literal

from envport.environment import Environment, tool
from envport.types import Step, Task

__all__ = ["SandboxedWorkload", "Workload"]


class Workload(Environment):
    """Echoes, burns, blocks, or breaks, as it is told."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        """Start an episode."""
        return f"{os.getpid()}"

    @tool
    def echo(self, message: str) -> str:
        """Say the message back."""
        return message

    @tool(name="score")
    def earn(self) -> Step[str]:
        """Earn a reward."""
        return Step("scored", reward=1.0)

    @tool
    def burn(self, seconds: float) -> str:
        """Use a CPU for so long."""
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        return "burnt"

    @tool
    def block(self, seconds: float) -> str:
        """Wait for so long, as for a disk or a network."""
        time.sleep(seconds)
        return "waited"

    @tool
    def die(self, of: Literal["SIGKILL", "SIGSEGV", "exit"]) -> str:
        """Die."""
        if of == "exit":
            os._exit(1)
        if of == "SIGSEGV":
            ctypes.string_at(0)
        os.kill(os.getpid(), signal.SIGKILL)
        return "alive"

    @tool
    def hang(self, hold_gil: bool) -> str:
        """Never return, letting other threads run or not."""
        if hold_gil:
            re.match(r"(a+)+$", "a" * 64 + "b")
        while True:
            pass

    @tool
    def eat(self, megabytes: int) -> str:
        """Take memory, and keep it."""
        held = b"\1" * (megabytes * 2**20)
        signal.pause()
        return str(len(held))


class SandboxedWorkload(Workload):
    """The same, in sandboxes."""

    runtime = "process"
    sandbox = True
