"""Evaluation and training give the same rewards for the same episodes."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import pytest
from command_line import envport_here
from harness import running
from slow import slow

from envport.registry import load
from envport_bridges.evaluation.players.policies import PolicyCall, View, load_policy
from envport_bridges.evaluation.results import Result

MISSING = [name for name in ("trl", "torch", "transformers", "datasets") if find_spec(name) is None]
if MISSING:
    pytest.skip(f"there is no training to compare with: {', '.join(MISSING)} missing", allow_module_level=True)

from envport_bridges.evaluation.inspect_ai.dataset import seed_of as seed_in_evaluation  # noqa: E402
from envport_bridges.trl import EnvironmentSpec  # noqa: E402
from envport_bridges.trl.rows import seed_of as seed_in_training  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "evaluate_catch"
REFERENCE = f"{EXAMPLE / 'policies.py'}:reference"


def in_training(reference: str, policy_name: str, **selection: Any) -> list[float | None]:
    """The rewards that the training bridge gives, in the order of its dataset."""
    spec = EnvironmentSpec(reference, **selection)
    policy: Any = load_policy(policy_name)
    environment: Any = spec.environment_factory()
    rewards: list[float | None] = []
    for row in spec.rows:
        observation = environment.reset(**row)
        prompt = row["prompt"][0]["content"].removesuffix("\n\n")
        view = View(spec.info.name, prompt, spec.info.tools, observation, Random(f"{row['seed']}/1"))
        made: list[PolicyCall] = []
        while not environment.finished and len(made) < 30:
            call = policy(view)
            if call is None:
                break
            made.append(call)
            view.observation = getattr(environment, call[0])(**call[1])
            view.history.append((call, None))  # type: ignore[arg-type]
        rewards.append(environment.score)
    return rewards


@pytest.mark.parametrize("seed", [0, 7])
def test_the_seeds_are_the_same(seed: int):
    for position in range(20):
        assert seed_in_evaluation(seed, position) == seed_in_training(seed, position) < 2**31


@pytest.mark.parametrize("policy", [*slow(["random", "noop"]), REFERENCE])
@pytest.mark.parametrize(
    ("reference", "selection"),
    [("catch", {}), ("catch?rows=4", {"split": "test", "num_tasks": 9, "seed": 7}), ("counter", {"num_tasks": 4})],
)
def test_the_same_seeds_give_the_same_rewards(policy: str, reference: str, selection: dict[str, Any]):
    words = [f"--{name.replace('_', '-')}={value}" for name, value in selection.items()]
    definition = load(reference)
    with running(definition) as gateway:
        env = f"{gateway.url}/environments/{definition.name}"
        done = envport_here("eval", env, "--policy", policy, "--max-calls", "30", *words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (document,) = json.loads(done.stdout)
    result = Result.read(document["log"])
    rewards = {one.sample: one.reward for one in result.played}
    trained = in_training(reference, policy, **selection)
    assert [rewards[sample] for sample in _in_order(document["log"])] == trained


def _in_order(log: str) -> list[str]:
    from inspect_ai.log import read_eval_log

    return [str(identifier) for identifier in read_eval_log(log, header_only=True).eval.dataset.sample_ids or []]
