"""How much longer this machine takes than a quiet one, measured once: no test fails because the machine is slow.

A limit of a test guards against waiting for ever; it does not say how fast something has to be. It is written as
`patient(seconds)`, in seconds of a quiet machine. Where a test is about speed, it compares two measurements of one run,
or what happened in which order.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

VARIABLE = "TESTS_PATIENCE"
MOST = 10.0
# How long a quiet machine takes to start Python and to import the gateway.
QUIET_SECONDS = 0.5


def patient(seconds: float) -> float:
    """A limit that a quiet machine would keep in this many seconds."""
    return seconds * factor()


def factor(processes: int = 1) -> float:
    """How many times longer everything may take: at least 1, at most `MOST`.

    The first process of a session measures it. Its children, as xdist's workers are, find it in their environment.

    Args:
        processes: How many processes the tests run in. Those that are measured later would have to share the cores.
    """
    if VARIABLE not in os.environ:
        share = max(1.0, processes / (os.cpu_count() or 1))
        os.environ[VARIABLE] = f"{min(MOST, share * max(1.0, _seconds() / QUIET_SECONDS)):.2f}"
    return float(os.environ[VARIABLE])


def _seconds() -> float:
    """The longer of two starts; the first may have to read from the disk."""
    taken: list[float] = []
    for _ in range(2):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import envport"], check=True)
        taken.append(time.perf_counter() - began)
    return max(taken)
