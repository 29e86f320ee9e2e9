"""`examples/own_environment` does what its README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples" / "own_environment"


def test_the_script_runs_and_prints_what_the_readme_shows() -> None:
    done = subprocess.run([sys.executable, FOLDER / "play.py"], capture_output=True, text=True, check=True)
    shown = re.findall(r"^```text\n(.*?)^```", (FOLDER / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(shown) == 1
    assert shown[0] in done.stdout


def test_an_environment_takes_fewer_than_25_lines() -> None:
    assert len((FOLDER / "guess_number.py").read_text().splitlines()) < 25
