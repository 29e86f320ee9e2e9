"""Agents that are written with frameworks of others are trained as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agent_training import assert_trained_as_sampled, train
from test_trl_training import DONE, guess_up_to, logged
from tiny_model import calls

EXAMPLE = Path(__file__).parents[2] / "examples" / "grpo_agent"
PYDANTIC = EXAMPLE / "pydantic_agent.py"


def clumsy(text: str, turn: int) -> str:
    """Names a tool that is not there and sends a wrong argument, and is right in the end."""
    if "Guess number 1." in text:
        return guess_up_to(3)(text, turn)
    return [calls(("nope", "{}")), calls(("guess", '{"number": "x"}')), calls(("guess", '{"number": 2}')), DONE][turn]


def test_an_agent_of_pydantic_ai_is_trained_as_it_is(tmp_path: Path):
    """Also what it makes of calls that fail, in its own words, is the context of what follows."""
    pytest.importorskip("pydantic_ai")
    rewards: list[Any] = []

    def reward(episode_reward: Any, agent_ending: Any, tool_failures: Any, **columns: Any) -> Any:
        rewards.extend(zip(episode_reward, agent_ending, tool_failures, strict=True))
        return episode_reward

    trainer = train(
        tmp_path,
        f"{{python}} {PYDANTIC} --resident",
        agent={"resident": True, "at_once": 1},
        script=clumsy,
        reward_funcs=[reward],
        per_device_train_batch_size=4,
        num_generations=2,
    )
    assert rewards == [(0.75, "exited", 0)] * 2 + [(1.0, "exited", 1)] * 2
    for name, value in (("chains", 1.0), ("left_out_tokens", 0.0), ("crashed", 0.0), ("refused_requests", 0.0)):
        assert logged(trainer, f"agent/{name}") == [value]
    assert assert_trained_as_sampled(trainer) == len(trainer.sampled) == 2 * 3 + 2 * 4
    assert any("Unknown tool name: 'nope'" in text for text in trainer.seen)
