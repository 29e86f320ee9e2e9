"""The environment's share of a GRPO step, as the bench prints it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patient

ROOT = Path(__file__).parents[2]


def run(*words: str) -> str:
    # Beside another part, whose connection stays.
    command = [sys.executable, "-m", "envport_bridges.trl.bench", "echo", "step", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patient(300), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow  # Warms a policy up, and trains it: half a minute.
def test_the_share_of_the_environment_in_a_step_is_printed() -> None:
    time, cpu = (line for line in run("--steps", "2", "--warm-up", "100").splitlines() if "%" in line)
    seconds, waited, share = map(float, re.findall(r"[\d.]+(?= s,| ms|%)", time)[:3])
    assert share == pytest.approx(100 * waited / 1e3 / seconds, abs=0.5)
    whole, gateway, bridge, of_cpu = map(float, re.findall(r"[\d.]+(?= s,| ms|%)", cpu))
    assert gateway > 0
    assert bridge > 0
    assert of_cpu == pytest.approx(100 * (gateway + bridge) / 1e3 / whole, abs=0.5)
