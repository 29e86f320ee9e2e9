"""The bench of recording prints every figure that it promises."""

import json
import subprocess
import sys

import pytest
from patience import patient


@pytest.mark.slow
def test_the_bench_prints_its_figures():
    done = subprocess.run(
        [sys.executable, "-m", "envport.bench.recording", "--quick", "--json"],
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=True,
    )
    figures = {figure["what"]: figure for figure in map(json.loads, done.stdout.splitlines())}
    print(done.stdout)
    assert len(figures) == 11
    assert [it["target"] for what, it in figures.items() if "calls per second" in what] == [0.85, 0.85]
    assert all(figure["value"] > 0 for figure in figures.values())
    # The target is for a hundred times as many.
    assert all(it["reached"] for what, it in figures.items() if "episodes:" in what), figures
