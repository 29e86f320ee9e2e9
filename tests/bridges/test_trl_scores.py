"""What is judged by its final state is trained on that judgement: also where the model stops by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from places import Place
from test_trl_lost import run
from test_trl_rollout import async_samples
from test_trl_training import DONE, logged
from tiny_model import calls
from trl import GRPOTrainer

from envport.errors import ConfigurationError, EpisodeOver
from envport_bridges.rollouts import Rollouts
from envport_bridges.trl import ConcurrentGRPOTrainer, EnvironmentSpec


def counts_once(text: str, turn: int) -> str:
    """Counts once, and stops: 1 for the call and 10 for where it left the counter."""
    return DONE if turn else calls(("count", "{}"))


def stops(text: str, turn: int) -> str:
    """Counts once, and then ends the game by a tool."""
    return (calls(("count", "{}")), calls(("stop", json.dumps({"how": "terminated"}))), DONE)[min(turn, 2)]


@pytest.mark.parametrize("script", [counts_once, stops])
@pytest.mark.parametrize("mode", ["stock", "concurrent", "rollout_func"])
def test_a_solved_episode_is_trained_on_as_solved(place: Place, tmp_path: Path, mode: str, script: Any):
    spec = place.spec("judged", indices=[1, 2])
    seen: list[tuple[Any, ...]] = []

    def look(environments: list[Any] | None = None, **columns: Any) -> list[float]:
        if environments is not None:
            seen.extend((one.finished, one.steps, one.rewards, one.reward) for one in environments)
        else:
            names = ("episode_finished", "tool_calls", "episode_rewards", "episode_reward")
            seen.extend(zip(*(columns[name] for name in names), strict=True))
        return [0.0] * 8

    trainer, output = run(
        tmp_path,
        spec,
        [*spec.reward_funcs, look],
        ConcurrentGRPOTrainer if mode == "concurrent" else GRPOTrainer,
        by_rollout=mode == "rollout_func",
        script=script,
    )
    assert logged(trainer, "rewards/episode_reward/mean") == [11.0]
    assert output["advantages"].tolist() == [0.0] * 8
    assert logged(trainer, "envport/lost_episodes") == [0.0]
    rewards = [1.0, 10.0] if script is counts_once else [1.0, None, 10.0]
    # Stopping is not the same as coming to an end.
    assert seen == [(script is stops, len(rewards) - 1, rewards, 11.0)] * 8


@pytest.mark.parametrize("mode", ["concurrent", "rollout_func"])
def test_an_episode_whose_score_breaks_is_lost(place: Place, tmp_path: Path, mode: str):
    """One of eight: the others are compared among themselves."""
    spec = place.spec("judged-badly", indices=[1, 2])
    trainer, output = run(
        tmp_path, spec, spec.reward_funcs, ConcurrentGRPOTrainer, by_rollout=mode == "rollout_func", script=counts_once
    )
    assert logged(trainer, "envport/lost_episodes") == [1.0]
    assert (output["completion_mask"] * output["tool_mask"]).sum() == 0
    assert output["advantages"].tolist() == [0.0] * 8


def test_asynchronous_training_gets_the_score(place: Place):
    spec = place.spec("judged", indices=[1, 2])
    _, samples = async_samples(spec, spec.async_environment_factory, counts_once, 8)
    assert {sample.metrics["reward"] for sample in samples} == {11.0}


def test_rollouts_are_finished(place: Place):
    where = place.spec("judged").target.where
    with Rollouts(where).open(task=1) as rollout:
        rollout.call("count", {})
        assert rollout.reward == 1.0
        assert rollout.finish() == rollout.finish() == rollout.reward == 11.0
        assert rollout.outcome is not None
        assert (rollout.outcome.reason, rollout.rewards) == ("finished", (1.0, 10.0))
        with pytest.raises(EpisodeOver):
            rollout.call("count", {})


def test_a_score_from_outside_in_this_process(tmp_path: Path):
    spec = EnvironmentSpec("scored_environments:Judged", indices=[1, 2], score="scored_environments:by_rubric")
    trainer, _ = run(tmp_path, spec, spec.reward_funcs, ConcurrentGRPOTrainer, script=counts_once)
    assert logged(trainer, "rewards/episode_reward/mean") == [101.5]


def test_a_gateway_is_not_told_how_to_score(gateway_url: str):
    spec = EnvironmentSpec(f"{gateway_url}/environments/judged", score="scored_environments:by_rubric")
    with pytest.raises(ConfigurationError, match="envport serve --score scored_environments:by_rubric"):
        _ = spec.info
