"""What an agent's sandbox keeps from it, asked in a process of some user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from patience import patient

from envport_bridges.agents.programs.agents import Agent
from envport_bridges.agents.programs.rooms import Rooms
from envport_bridges.agents.programs.sandbox import AgentSandbox

PROBE = """
import glob, json, os, re

def can_write(path):
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError:
        return False
    return True

print(json.dumps({
    "user": os.getuid(),
    "processes": len(glob.glob("/proc/[0-9]*")),
    "capabilities": sorted(set(re.findall(r"Cap...:\\s*(\\w+)", open("/proc/self/status").read()))),
    "kernel": [path for path in glob.glob("/proc/sys/kernel/*") if can_write(path)],
}))
"""


async def probed() -> None:
    """Run the probe in a sandbox that this process makes, and check what it says."""
    told = _told()
    # Bubblewrap's first process, and the probe.
    assert (told["processes"], told["capabilities"], told["kernel"]) == (2, ["0" * 16], []), told
    assert told["user"] == os.getuid(), told


def _told() -> dict[str, Any]:
    sandbox = AgentSandbox(Agent("{python}"))
    sandbox.require()
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "wb") as status:
        rooms = Rooms(Path(folder))
        sandbox.prepare(rooms)
        done = subprocess.run(
            sandbox.words([sys.executable, "-c", PROBE], rooms, status.fileno()),
            env={**os.environ, **sandbox.variables},
            capture_output=True,
            timeout=patient(30),
            pass_fds=[status.fileno()],
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
