"""The example that goes once around: an expert is recorded, exported and fine-tuned on; then comes GRPO."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from harness import running
from patience import patient

from envport import Client
from envport.registry import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "loop"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Imports a module of the example: this process has loaded torch and TRL."""
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    threads = torch.get_num_threads()
    yield importlib.import_module
    torch.set_num_threads(threads)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(EXAMPLE.parent)):
            del sys.modules[name]


def test_the_expert_catches_every_ball_that_it_does_not_slip_at(example: Any):
    expert = example("expert")
    with running(load("catch=catch?rows=5&columns=5&render=words")) as gateway, Client(gateway.url) as client:
        asyncio.run(expert.play(gateway.url, "catch", 12, seed=1))
        asyncio.run(expert.play(gateway.url, "catch", 12, seed=1, share=0.9, run="slips"))
        rewards = {run: [it.reward for it in client.episodes(labels={"run": run})] for run in ("expert", "slips")}
    assert rewards["expert"] == [1.0] * 12
    assert -1.0 in rewards["slips"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_once_around_in_short(example: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """Too short to learn anything; but every step is there, and the store has the rewards that the trainer saw."""
    short = ["--demonstrations", "12", "--slips", "0", "--epochs", "1", "--batches", "1", "--groups", "1"]
    rewards = example("run").main([*short, "--evaluation", "8", "--gain", "-9", "--output", str(tmp_path)])
    assert list(rewards) == ["before", "fine-tuned", "trained"]
    assert f"Exported 12 episodes to {tmp_path / 'expert.parquet'}." in capfd.readouterr().out
    assert (tmp_path / "rewards.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_each_step_of_the_loop_helps(tmp_path: Path):
    command = [sys.executable, str(EXAMPLE / "run.py"), "--output", str(tmp_path), "--batches", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(1400))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    listing = [sys.executable, "-m", "envport.cli", "episodes", "list", "--store", str(tmp_path / "episodes"), "--json"]
    trained = subprocess.run([*listing, "--label", "run=grpo", "--limit", "9999"], capture_output=True, check=True)
    # Every episode of the training is in the store: twenty batches of eight groups of eight.
    assert len(json.loads(trained.stdout)) == 20 * 64
