"""A lost episode is never trained on: in every mode, beside every kind of reward function, through real runs."""

from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from places import Place
from slow import slow
from test_trl_rollout import async_samples
from test_trl_training import DONE, logged
from tiny_model import calls, config, make_model, make_tokenizer, scripted
from trl import GRPOTrainer

from envport.errors import ConfigurationError
from envport_bridges.trl import ConcurrentGRPOTrainer, combine

TRL_README = Path(__file__).parents[2] / "bridges" / "envport_bridges" / "trl" / "README.md"


class FirstBreaks:
    """The first rollout of each run breaks its environment; all others guess wrong and stop."""

    def __init__(self) -> None:
        self.rollouts = 0

    def __call__(self, text: str, turn: int) -> str:
        if turn:
            return DONE
        self.rollouts += 1
        return calls(("break_down", "{}")) if self.rollouts == 1 else calls(("guess", '{"number": 7}'))


def length(completions: list[Any], **columns: Any) -> list[float]:
    """A reward function that knows nothing of faults."""
    return [0.5] * len(completions)


async def judged(completions: list[Any], **columns: Any) -> list[float]:
    return [0.5] * len(completions)


class Judge:
    """A reward function that is an object."""

    def __call__(self, completions: list[Any], **columns: Any) -> list[float]:
        return [0.5] * len(completions)


def careful(environments: list[Any], **columns: Any) -> list[float | None]:
    """A reward function of one's own that leaves lost episodes out itself."""
    return [None if one.score is None else 1.0 for one in environments]


def run(
    tmp_path: Path, spec: Any, reward_funcs: list[Any], trainer_class: type[Any] = GRPOTrainer, **options: Any
) -> tuple[Any, dict[str, Any]]:
    """Train one step in which one of eight episodes is lost; returns the trainer and what it learned from."""
    outputs: list[dict[str, Any]] = []

    class Kept(scripted(trainer_class, options.pop("script", FirstBreaks()))):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            outputs.append(super()._generate_and_score_completions(inputs))
            return outputs[-1]

    tokenizer = make_tokenizer()
    by_rollout = options.pop("by_rollout", False)
    playing = (
        {"rollout_func": spec.rollout_func, "train_dataset": spec.rollout_dataset}
        if by_rollout
        else {"environment_factory": spec.environment_factory, "train_dataset": spec.train_dataset}
    )
    trainer = Kept(
        model=make_model(tokenizer),
        args=config(tmp_path, **options),
        processing_class=tokenizer,
        reward_funcs=reward_funcs,
        **playing,
    )
    trainer.train()
    return trainer, outputs[0]


def assert_left_out(trainer: Any, output: dict[str, Any]) -> None:
    """The lost episode moves nothing: not its group's advantages, not the loss, not the number of its tokens."""
    assert output["advantages"].tolist() == [0.0] * 8
    assert list(trainer._logs["advantages"])[-8:] == [0.0] * 8
    mask = output["completion_mask"] * output["tool_mask"]
    assert mask[0].sum() == 0
    assert (mask[1:].sum(dim=1) > 0).all()
    assert output["num_items_in_batch"] == mask.sum()
    assert logged(trainer, "envport/lost_episodes") == [0.125]


@pytest.fixture
def spec(place: Place) -> Any:
    return place.spec("guess", indices=[1, 4])


# Where it plays is nothing to the reward function.
any_function = pytest.mark.parametrize(
    ("reward", "place"),
    [
        *((reward, "in process") for reward in (length, judged, Judge())),
        *slow([(partial(length), "in process"), (length, "gateway")]),
    ],
    ids=["def", "async", "object", "partial", "def at a gateway"],
    indirect=["place"],
)


# TRL calls them the same way, and `test_a_rollout_function_takes_any_reward_function_with_the_stock_trainer` has one.
@pytest.mark.parametrize("by_rollout", [False, *slow([True])], ids=["environments", "rollout_func"])
@any_function
def test_the_concurrent_trainer_takes_any_reward_function(spec: Any, tmp_path: Path, reward: Any, by_rollout: bool):
    rewards = [*spec.reward_funcs, reward]
    assert_left_out(*run(tmp_path, spec, rewards, ConcurrentGRPOTrainer, by_rollout=by_rollout))


def test_a_rollout_function_takes_any_reward_function_with_the_stock_trainer(spec: Any, tmp_path: Path):
    assert_left_out(*run(tmp_path, spec, [*spec.reward_funcs, length], by_rollout=True))


@any_function
def test_the_stock_trainer_takes_wrapped_reward_functions(spec: Any, tmp_path: Path, reward: Any):
    rewards = spec.rewards(reward)
    assert_left_out(*run(tmp_path, spec, rewards))


def test_a_wrapped_function_keeps_its_name_and_gives_what_it_gave(spec: Any, tmp_path: Path):
    trainer, _ = run(tmp_path, spec, spec.rewards(length, Judge()))
    assert trainer.reward_func_names == ["episode_reward", "length", "Judge"]
    assert logged(trainer, "rewards/length/mean") == [0.5]
    assert [reward for reward in trainer._logs["rewards"]["length"] if reward == reward] == [0.5] * 7


def test_wrapped_functions_can_be_sent_to_other_processes(spec: Any):
    _, wrapped = spec.rewards(length)
    lost = SimpleNamespace(completions=["a", "b"], episode_lost=[True, False])
    assert pickle.loads(pickle.dumps(wrapped))(**vars(lost)) == [None, 0.5]


@pytest.mark.parametrize("weights", [None, [1.0, 0.0]], ids=["", "only logged"])
def test_the_stock_trainer_is_stopped_when_a_function_rewards_a_lost_episode(
    spec: Any, tmp_path: Path, weights: list[float] | None
):
    with pytest.raises(ConfigurationError, match=re.escape("Pass reward_funcs=spec.rewards(length)")) as stopped:
        run(tmp_path, spec, [*spec.reward_funcs, length], reward_weights=weights)
    assert str(stopped.value).startswith("1 of 8 episodes were lost to faults, and the reward function 'length' gave")


def test_the_stock_trainer_is_stopped_where_no_function_is_ours(spec: Any, tmp_path: Path):
    with pytest.raises(ConfigurationError, match=re.escape("spec.rewards(length, judged)")):
        run(tmp_path, spec, [length, judged])


def test_it_is_stopped_too_if_the_factory_is_wrapped(spec: Any, tmp_path: Path):
    wrapped = SimpleNamespace(environment_factory=lambda: spec.environment_factory(), train_dataset=spec.train_dataset)
    with pytest.raises(ConfigurationError, match="lost to faults"):
        run(tmp_path, wrapped, [length])


def test_a_run_without_lost_episodes_needs_no_wrapping(spec: Any, tmp_path: Path):
    trainer, output = run(tmp_path, spec, [*spec.reward_funcs, length], script=lambda text, turn: DONE)
    assert logged(trainer, "envport/lost_episodes") == [0.0]
    assert output["advantages"].tolist() == [0.0] * 8


def test_functions_that_leave_lost_episodes_out_themselves_go_on(spec: Any, tmp_path: Path):
    assert_left_out(*run(tmp_path, spec, [careful]))


@pytest.mark.parametrize("trainer_class", [GRPOTrainer, ConcurrentGRPOTrainer])
def test_environments_that_own_their_reward(place: Place, tmp_path: Path, trainer_class: type[Any]):
    spec = place.spec("guess", indices=[1, 4], get_reward=True)
    assert [one.__name__ for one in spec.rewards(length)] == ["length"]
    assert_left_out(*run(tmp_path, spec, spec.rewards(length), trainer_class))
    if trainer_class is GRPOTrainer:
        with pytest.raises(ConfigurationError, match="'length' gave"):
            run(tmp_path, spec, [length])


def test_several_environments(place: Place, tmp_path: Path):
    both = combine({"guess": place.spec("guess", indices=[1]), "again": place.spec("guess", indices=[4])})
    trainer, output = run(tmp_path, both, both.rewards(length))
    assert_left_out(trainer, output)


def test_the_rest_of_the_group_is_compared_among_itself(spec: Any, tmp_path: Path):
    """One of four is lost, one of the others is right: its advantage is that of a group of three."""

    class OneIsRight(FirstBreaks):
        def __call__(self, text: str, turn: int) -> str:
            written = super().__call__(text, turn)
            return calls(("guess", json.dumps({"number": 1}))) if self.rollouts == 2 and not turn else written

    _, output = run(tmp_path, spec, spec.rewards(length), script=OneIsRight())
    rewards = torch.tensor([1.5, 0.25, 0.25])
    expected = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    assert output["advantages"][0] == 0
    assert torch.allclose(output["advantages"][1:4], expected, atol=1e-5)


def test_a_batch_that_is_lost_whole_moves_nothing(spec: Any, tmp_path: Path):
    trainer, output = run(
        tmp_path, spec, spec.rewards(length), script=lambda text, turn: DONE if turn else calls(("break_down", "{}"))
    )
    assert output["advantages"].tolist() == [0.0] * 8
    assert logged(trainer, "envport/lost_episodes") == [1.0]
    assert logged(trainer, "grad_norm") == [0.0]


def test_reward_models_cannot_be_wrapped(spec: Any):
    with pytest.raises(ConfigurationError, match="'Linear' is a reward model"):
        spec.rewards(torch.nn.Linear(1, 1))
    with pytest.raises(ConfigurationError, match="'Qwen/reward' is a reward model"):
        spec.rewards("Qwen/reward")


def test_the_async_worker_trains_on_the_others_alone(place: Place):
    spec = place.spec("guess", indices=[1, 4])
    _, samples = async_samples(spec, spec.async_environment_factory, FirstBreaks(), 7, reward_funcs=[length])
    assert {sample.advantage for sample in samples} == {0.0}
    assert {sample.metrics["rewards/length"] for sample in samples} == {0.5}
    assert [sample.metrics["rewards/Guess"] for sample in samples] == [-0.25] * 7
    # One group of four has lost one of its rollouts.
    assert sorted(Counter(sample.group_id for sample in samples).values()) == [3, 4]


def test_the_shaping_function_of_the_docs(spec: Any, tmp_path: Path):
    block = next(
        body for body in re.findall(r"```python\n(.*?)```", TRL_README.read_text(), re.DOTALL) if "def " in body
    )
    given: dict[str, Any] = {}

    def take(*_: Any, **arguments: Any) -> None:
        given.update(arguments)

    exec(block, {"GRPOTrainer": take, "spec": spec})
    trainer, output = run(tmp_path, spec, given["reward_funcs"])
    assert_left_out(trainer, output)
    assert trainer.reward_func_names == ["episode_reward", "finished"]
    assert logged(trainer, "rewards/finished/mean") == [-0.5]
