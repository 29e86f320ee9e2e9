"""Runs a server of the benchmark under a profiler: `python -m envport.bench.profiled FILE MODULE ARGUMENTS`.

At SIGUSR1 it begins to profile the main thread, by CPU time. At SIGUSR2 it ends that and writes what it found to the
file. It answers both with a line on standard output.
"""

from __future__ import annotations

import cProfile
import runpy
import signal
import sys
import time
from types import FrameType

__all__ = ["BEGUN", "ENDED", "main"]

BEGUN, ENDED = "profiling begun", "profiling ended"
"""The answers to the signals."""


def main(file: str, module: str, *arguments: str) -> None:
    """Run the module."""
    profile = cProfile.Profile(time.thread_time)

    def begin(number: int, frame: FrameType | None) -> None:
        print(BEGUN, flush=True)
        profile.enable()

    def end(number: int, frame: FrameType | None) -> None:
        profile.disable()
        profile.dump_stats(file)
        print(ENDED, flush=True)

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
