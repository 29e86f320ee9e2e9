"""A vLLM server plays evaluations, and generates for GRPO with the weights of each step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import envport_here
from file_client import FileClient, ForgetfulClient
from training import GAME, WAYS, logp_differences, train

from envport_bridges.agents.model.sampling import SampleRequest
from envport_bridges.agents.model.transformers_sampler import load_model
from envport_bridges.agents.model.vllm_sampler import VllmSampler

pytestmark = pytest.mark.slow


def test_a_model_of_vllm_is_evaluated(policy: Path, server: str):
    words = ["--model", f"vllm/{policy}", "--model-base-url", server, "--temperature", "0", "--max-tokens", "64"]
    done = envport_here("eval", GAME, *words, "--num-tasks", "8", "--jobs", "4", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(done.stdout)
    assert (result["episodes"], result["infrastructure_failures"]) == (8, 0), result["lost"]
    # A ball takes four moves to fall: vLLM's parser read the tool calls.
    assert result["steps"] > 3
    assert result["tool_errors"] == 0
    assert -1 <= result["reward"]["mean"] <= 1
    assert result["tokens"] > 8 * 4


def test_an_agent_plays_with_a_policy_that_vllm_samples(policy: Path, server: str):
    """By token ids, with log probabilities, and in one session for each episode."""
    agent = Path(__file__).parents[2] / "examples" / "grpo_agent" / "agent.py"
    words = ["--agent", f"{{python}} {agent}", "--no-sandbox", "--agent-model", str(policy), "-M", f"vllm={server}"]
    done = envport_here("eval", GAME, *words, "--num-tasks", "4", "--jobs", "4", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(done.stdout)
    assert (result["episodes"], result["infrastructure_failures"]) == (4, 0), result["lost"]
    assert result["steps"] > 1
    assert result["tokens"] > 4 * 4


# Before the tests that train: they leave other weights at the server.
def test_vllm_gives_ids_and_log_probabilities_of_what_it_samples(policy: Path, server: str):
    model = load_model(str(policy))
    prompts = [[5, 6, 7], [9, 8, 7, 6, 5]]
    sampler = VllmSampler(server, seed=0)
    try:
        sampled = [future.result(120) for future in sampler.sample([SampleRequest(ids, 8) for ids in prompts])]
    finally:
        sampler.close()
    for prompt, one in zip(prompts, sampled, strict=True):
        assert one.logprobs is not None
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + one.ids])).logits[0, len(prompt) - 1 : -1]
        chosen = logits.log_softmax(-1)[range(len(one.ids)), one.ids]
        assert torch.allclose(chosen, torch.tensor(one.logprobs), atol=1e-3)


@pytest.mark.parametrize("way", WAYS)
def test_each_step_generates_with_the_weights_of_the_last(
    way: str, policy: Path, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    history = train_with(FileClient, way, policy, server, tmp_path, monkeypatch)
    assert max(logp_differences(history)) < 1e-4


def test_weights_that_are_not_sent_are_seen(policy: Path, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Otherwise, the test above would show nothing: a run with old weights ends like any other."""
    history = train_with(ForgetfulClient, "rollout_func", policy, server, tmp_path, monkeypatch)
    first, *others = logp_differences(history)
    assert first < 1e-4
    assert min(others) > 1e-3


def train_with(client: type[Any], way: str, policy: Path, server: str, tmp_path: Path, patch: Any) -> Any:
    patch.setattr("trl.generation.vllm_generation.VLLMClient", client)
    where = {"vllm_mode": "server", "vllm_server_base_url": server.removesuffix("/v1")}
    return train(policy, way, tmp_path, **where)
