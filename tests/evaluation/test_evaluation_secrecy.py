"""What a program that runs as the same user can read of the evaluation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

READ = """
import os, subprocess, sys
from envport.secrecy import hide_memory

if os.getuid() == 0:
    # Whoever is root may read everything anyway.
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    import ctypes
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
if sys.argv[1] == "hidden":
    hide_memory()
read = subprocess.run(["cat", f"/proc/{os.getpid()}/environ"], capture_output=True)
print(b"hunter2" in read.stdout)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can close a process to its own user")
@pytest.mark.parametrize(("mode", "readable"), [("open", "True"), ("hidden", "False")])
def test_the_variables_of_an_evaluation_cannot_be_read_by_its_agents(mode: str, readable: str):
    done = subprocess.run(
        [sys.executable, "-c", READ, mode],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"ENVPORT_TOKEN": "hunter2", "PATH": "/usr/bin:/bin"},
    )
    assert done.stdout == f"{readable}\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_no_file_argument_or_variable_holds_the_token_of_a_gateway_started_in_place():
    from envport_bridges.agents.gateways.place import Place

    place = Place.of("catch")
    assert place.hosted is not None
    assert place.token
    assert len(place.token) >= 32
    folder = Path("/proc", str(place.hosted.process.pid))
    for name in ("cmdline", "environ"):
        assert place.token.encode() not in (folder / name).read_bytes()
    place.hosted.stop()
    assert place.hosted.process.returncode == 0
