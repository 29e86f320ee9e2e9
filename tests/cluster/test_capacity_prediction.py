"""Capacity planning predicts two hosts from one, and the prediction is right."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from patience import patient

from envport.bench.capacity import ClusterCosts

SCRIPT = Path(__file__).parents[2] / "examples" / "cluster" / "predict.py"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(find_spec("aiohttp") is None, reason="needs the extra envport[bench]")
def test_two_hosts_do_what_is_predicted_from_one(tmp_path: Path):
    pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
    file = tmp_path / "cluster.json"
    command = [sys.executable, str(SCRIPT), "--rounds", "5", "--within", "1.3", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(300))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    for figure in ("CPU of a call", "calls a second", "memory"):
        assert figure in done.stdout
    costs = ClusterCosts.read(file)
    assert min(costs.call_us.gateway, costs.call_us.host, costs.call_us.episode) > 0
    assert costs.descriptors == 2
    assert json.loads(file.read_text())["processes"] == 1
