"""Decides whether the player's code is to blame for the loss of an episode's process."""

from __future__ import annotations

from envport.errors import WorkerLost

__all__ = ["PlayerCodeNotice"]

# What ends a process from within. Code of the player runs in a PID namespace of its own, and cannot cause these.
_OWN_CRASHES = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"})


class PlayerCodeNotice:
    """Code of the player has begun to run in an episode, and has not ended."""

    def __init__(self) -> None:
        self._kills = _kills_for_memory()

    def owns(self, lost: WorkerLost) -> bool:
        """Whether the process was lost to the player's code, as far as can be known.

        It was not if the machine was the cause, or if the environment's process crashed or ended by itself.
        """
        if lost.fault != "environment":
            return False
        if lost.reason != "worker_lost":
            return True
        if lost.signal_name is None or lost.signal_name in _OWN_CRASHES:
            return False
        if _kills_for_memory() != self._kills:
            lost.fault = "infrastructure"
            return False
        return True


def _kills_for_memory() -> int:
    """How many processes the kernel has killed so far because the machine, or a control group, had no memory left."""
    try:
        with open("/proc/vmstat", "rb") as file:
            return next((int(line.split()[1]) for line in file if line.startswith(b"oom_kill ")), 0)
    except (OSError, ValueError):
        return 0
