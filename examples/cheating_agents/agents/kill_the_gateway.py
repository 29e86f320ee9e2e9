"""Where it has lost, it kills the gateway, whose end is no fault of a player."""

import contextlib
import os
import signal
from pathlib import Path

from play import call, has_lost, processes_of_the_evaluation

if has_lost():
    for pid in processes_of_the_evaluation():
        with contextlib.suppress(OSError):
            if "gateways.child" in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
                os.kill(pid, signal.SIGKILL)
call("finish")
