"""The example tells its story: a replica is killed, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from patience import patient

SCRIPT = Path(__file__).parents[2] / "examples" / "cluster" / "run.py"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_nothing_is_lost_with_a_replica():
    pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
    command = [sys.executable, str(SCRIPT), "--episodes", "6", "--calls", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(170))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 episodes on 2 nodes, 20 calls each, one of two replicas killed: 0 lost" in done.stdout
