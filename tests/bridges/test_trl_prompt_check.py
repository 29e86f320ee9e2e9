"""A model that is left without its tools stops the run at its first batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_trl_rollout import train as train_by_rollout_func
from test_trl_training import guess_up_to, logged, train
from trl import GRPOTrainer

from envport.errors import ConfigurationError
from envport_bridges.trl import ConcurrentGRPOTrainer, EnvironmentSpec
from envport_bridges.trl.prompt_check import require_tools_in_prompts


class Forgetful(GRPOTrainer):
    """A trainer that collects tools in another way."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._env_tools = {name: [] for name in self._env_tools}


class Renaming(GRPOTrainer):
    """A trainer that shows the model another tool."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)

        def other(number: int) -> str:
            """Guess the number.

            Args:
                number: The number.
            """
            return ""

        self._env_tools = {name: [other] for name in self._env_tools}


@pytest.mark.parametrize("trainer_class", [Forgetful, Renaming])
def test_a_trainer_that_does_not_show_the_tools_is_stopped(tmp_path: Path, trainer_class: type[Any]):
    spec = EnvironmentSpec("mirror:Guess", indices=[0, 4])
    with pytest.raises(ConfigurationError, match=r"does not hold the tools of the environment \(guess"):
        train(tmp_path, spec, guess_up_to(1), trainer_class)


@pytest.mark.parametrize("trainer_class", [GRPOTrainer, ConcurrentGRPOTrainer])
def test_the_tools_of_each_task_are_found(tmp_path: Path, trainer_class: type[Any]):
    spec = EnvironmentSpec("task_tools:Toolbox", num_tasks=2)
    trainer = train(tmp_path, spec, lambda text, turn: "Done.<|im_end|>", trainer_class)
    assert logged(trainer, "envport/lost_episodes") == [0.0]
    seen = trainer.seen[:8]
    assert len({text.rpartition("</tools>")[0] for text in seen}) == 2


def test_a_prompt_without_tools_is_refused_with_a_rollout_func_too(tmp_path: Path):
    spec = EnvironmentSpec("mirror:Guess", indices=[0, 4])
    trainer = train_by_rollout_func(tmp_path, spec, guess_up_to(1))
    tokenizer = trainer.processing_class
    environment = spec.environment_factory()
    whole = trainer.seen[0]
    require_tools_in_prompts(trainer, [environment], [tokenizer(whole)["input_ids"]])
    without = whole.replace('"name": "guess"', '"name": "gues"')
    with pytest.raises(ConfigurationError, match="does not hold the tools"):
        require_tools_in_prompts(trainer, [environment], [tokenizer(without)["input_ids"]])
    trainer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    with pytest.raises(ConfigurationError, match="shows the model no tools"):
        require_tools_in_prompts(trainer, [environment], [[1]])


@pytest.mark.parametrize(
    ("indices", "message"),
    [([], "indices is empty"), (["1"], "indices holds '1'; it has to hold integers"), ([True], "indices holds True")],
)
def test_indices_that_are_none_are_refused(indices: list[Any], message: str):
    with pytest.raises(ConfigurationError, match=message):
        EnvironmentSpec("mirror:Guess", indices=indices)


def test_rows_for_evaluation_are_made_in_one_line(tmp_path: Path):
    spec = EnvironmentSpec("catch", split="train", num_tasks=2)
    test = spec.eval_dataset("test", num_tasks=3)
    assert (set(test["split"]), len(test), len(spec.train_dataset)) == ({"test"}, 3, 2)
    again = spec.eval_dataset(num_tasks=2)
    assert (again["split"], again["task_id"]) == (spec.train_dataset["split"], spec.train_dataset["task_id"])
    assert set(again["seed"]).isdisjoint(spec.train_dataset["seed"])


def test_metadata_can_be_left_out():
    whole, bare = (
        EnvironmentSpec("catch", num_tasks=1, include_metadata=given).train_dataset for given in (True, False)
    )
    assert set(whole.column_names) - set(bare.column_names) == {"ball", "paddle"}
    assert bare.column_names == ["prompt", "seed", "split", "task_index", "task_id"]
