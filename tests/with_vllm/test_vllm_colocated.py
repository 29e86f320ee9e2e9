"""vLLM in the trainer's own process generates for GRPO with the weights of each step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from training import logp_differences, train
from vllm.platforms.cpu import CpuPlatform

pytestmark = pytest.mark.slow


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL tells vLLM by variables which process this is: they are taken away after the test."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM computes as the trainer does. By itself it would take bfloat16, and TRL has no option for that."""
    monkeypatch.setattr(CpuPlatform, "supported_dtypes", [torch.float32])


@pytest.mark.parametrize("way", ["environment_factory", "agent"])
@pytest.mark.usefixtures("alone", "exact")
def test_each_step_generates_with_the_weights_of_the_last(way: str, policy: Path, tmp_path: Path):
    history = train(policy, way, tmp_path, vllm_mode="colocate", vllm_max_model_length=1024)
    assert max(logp_differences(history)) < 1e-4
