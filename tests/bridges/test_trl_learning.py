"""The example learns: a shorter form of it, by the same script, through a gateway of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tiny_model import make_model, make_tokenizer

EXAMPLE = Path(__file__).parents[2] / "examples" / "grpo_catch"


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_tiny_model_learns_catch_through_the_gateway(tmp_path: Path):
    command = [sys.executable, str(EXAMPLE / "train.py"), "--seeds", "0", "--batches", "30", "--evaluation", "100"]
    options = ["--threshold", "0.7", "--output", str(tmp_path)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=1400)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "seed 0: caught 0." in done.stdout
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_killed_episodes_are_left_out_and_the_run_goes_on(tmp_path: Path):
    """One in five processes is killed in the middle of a move; the script checks that none of them has a reward."""
    command = [sys.executable, str(EXAMPLE / "train.py"), "--seeds", "0", "--batches", "4", "--evaluation", "16"]
    options = ["--warm-up", "300", "--kill", "0.2", "--threshold", "0", "--output", str(tmp_path)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lost = re.search(r"(\d+) of 256 episodes were lost to faults: none of them was scored", done.stdout)
    assert lost
    assert 20 <= int(lost[1]) <= 90


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_tiny_model_learns_two_environments_at_once(tmp_path: Path):
    script = EXAMPLE.parent / "grpo_several" / "train.py"
    command = [sys.executable, str(script), "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=880)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "colours:" in done.stdout


def test_the_script_for_any_model_runs(tmp_path: Path):
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path / "model")
    make_model(tokenizer).save_pretrained(tmp_path / "model")
    script = EXAMPLE.parent / "grpo_any" / "train.py"
    environments = ["echo", "catch?rows=3", "sudoku?size=4&blanks=4"]
    environments += ["wordle"] if find_spec("textarena") is not None else []
    command = [sys.executable, str(script), *environments, "--model", str(tmp_path / "model")]
    options = ["--steps", "2", "--groups", "4", "--group-size", "2", "--max-completion-length", "16"]
    # A model with random weights does not know how to call a tool.
    options += ["--allow-silence", "--output", str(tmp_path)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "reward by tenths: 0.000" in done.stdout
