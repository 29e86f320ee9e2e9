"""Tasks with tools of their own: the model is shown the tools that the episode of its row lists over MCP."""

from __future__ import annotations

import asyncio
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from places import Place
from task_tools import INDEX_OF, TOOLS_OF
from test_trl_rollout import async_samples
from test_trl_rollout import train as train_by_rollout_func
from test_trl_training import DONE, logged, train
from tiny_model import calls
from trl import GRPOTrainer

from envport_bridges.rollouts import Rollouts
from envport_bridges.rollouts.backend import RolloutEpisode
from envport_bridges.trl import ConcurrentGRPOTrainer, EnvironmentSpec, combine

TWO = [INDEX_OF["some"], INDEX_OF["own"]]


def shown_in(prompt: str) -> str:
    """The names, descriptions and schemas in a prompt, as they are written there."""
    block = prompt.split("<tools>\n", 1)[1].split("\n</tools>", 1)[0]
    functions = [json.loads(line)["function"] for line in block.split("\n")]
    return json.dumps([[it["name"], it["description"], it["parameters"]] for it in functions])


def listed_by(place: Place, spec: EnvironmentSpec, task: int) -> str:
    """The same of what an MCP client gets at the address of an episode of the task."""
    episode = spec._connection.loop.run(spec._connection.open(_choice(task)))
    try:
        tools = asyncio.run(_over_mcp(episode)) if place.url is not None else episode.tools or []
        return json.dumps([[it["name"], it.get("description", ""), it["inputSchema"]] for it in tools])
    finally:
        spec._connection.loop.run(spec._connection.source.close(episode))


def _choice(task: int) -> Any:
    from envport.types import Choice

    return Choice("train", task, 1)


async def _over_mcp(episode: RolloutEpisode) -> list[dict[str, Any]]:
    async with Client(episode.address) as client:
        tools = (await client.list_tools()).tools
    return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]


def solve(text: str, turn: int) -> str:
    """Uses a tool that only the prompt's own task has."""
    if turn:
        return DONE
    own = '"name": "peek"' in text.split("\n</tools>")[0]
    return calls(("peek", "{}"), ("open", '{"door": "red"}')) if own else calls(("subtract", '{"a": 3, "b": 1}'))


@pytest.mark.parametrize("trainer_class", [GRPOTrainer, ConcurrentGRPOTrainer])
def test_each_prompt_has_the_tools_of_its_task(place: Place, tmp_path: Path, trainer_class: type[Any]):
    spec = place.spec("toolbox", indices=TWO)
    trainer = train(tmp_path, spec, solve, trainer_class)
    prompts = [text for text in trainer.seen if "assistant\n<tool_call>" not in text]
    by_task = {name: {shown_in(text) for text in prompts if f"Do {name}." in text} for name in ("some", "own")}
    assert by_task == {name: {listed_by(place, spec, INDEX_OF[name])} for name in ("some", "own")}
    assert logged(trainer, "rewards/episode_reward/mean") == [pytest.approx(0.25)]
    assert logged(trainer, "tools/failure_frequency") == [0.0]
    assert logged(trainer, "envport/lost_episodes") == [0.0]


def test_each_distinct_listing_has_one_factory(place: Place):
    spec = place.spec("toolbox", num_tasks=8)
    factories = spec.environment_factory
    names = spec.train_dataset["environment"]
    assert len(factories) == len(TOOLS_OF) == len(set(names))
    assert list(names[:4]) == list(names[4:]) == list(factories)
    for name, row in zip(names[:4], TOOLS_OF, strict=True):
        assert name.startswith("toolbox@")
        assert [tool["name"] for tool in factories[name].listing.tools] == TOOLS_OF[row]
    copied = pickle.loads(pickle.dumps(factories[names[1]]))
    row = {key: value for key, value in spec.rows[1].items() if key != "environment"}
    assert copied().reset(**row) == "task one"


def test_a_row_with_another_tasks_tools_is_left_out(place: Place, caplog: pytest.LogCaptureFixture):
    spec = place.spec("toolbox", indices=TWO)
    first, second = spec.rows
    instance = spec.environment_factory[first["environment"]]()
    instance.reset(**second)
    assert instance.outcome is not None
    assert instance.outcome.infrastructure
    assert "its task has other tools than the model is shown" in caplog.text
    assert instance.reset(**first) == "task some"


def test_environments_are_combined_by_listing(place: Place, tmp_path: Path):
    both = combine({"tools": place.spec("toolbox", indices=TWO), "guess": place.spec("guess", indices=[0])})
    assert len(both.environment_factory) == 3
    assert set(both.train_dataset["environment"]) == set(both.environment_factory)

    def script(text: str, turn: int) -> str:
        return calls(("guess", '{"number": 0}')) if not turn and "Guess number" in text else solve(text, turn)

    trainer = train(tmp_path, both, script, per_device_train_batch_size=12)
    assert logged(trainer, "rewards/episode_reward/mean") == [pytest.approx((1.0 + 0.5 + 0.0) / 3)]
    assert logged(trainer, "tools/failure_frequency") == [0.0]


def test_rollout_func_shows_them_too(place: Place, tmp_path: Path):
    spec = place.spec("toolbox", indices=TWO)
    trainer = train_by_rollout_func(tmp_path, spec, solve)
    assert {shown_in(text) for text in trainer.seen} == {listed_by(place, spec, index) for index in TWO}
    assert logged(trainer, "tools/failure_frequency") == [0.0]


def test_the_async_worker_with_episodes_opened_ahead(place: Place):
    spec = place.spec("toolbox", indices=TWO)
    factories = spec.opened_ahead(4, 6)
    worker, samples = async_samples(spec, factories, solve, 8)
    assert {shown_in(text) for text in worker.seen} == {listed_by(place, spec, index) for index in TWO}
    assert all(sample.metrics["tools/failure_frequency"] == 0 for sample in samples)


def test_each_factory_opens_the_episodes_of_its_own_tools_ahead(place: Place):
    spec = place.spec("toolbox", indices=TWO)
    factories = spec.opened_ahead(2, 4)
    for row in spec.rows:
        factory = factories[row["environment"]]
        for instance in [factory(), factory()]:
            instance.reset(**row)
        assert factory._ahead.foreseen == 1


def test_rollouts_from_python_know_the_tools_of_their_episode(place: Place):
    rollouts = Rollouts(place.spec("toolbox").target)
    with rollouts.open(task=INDEX_OF["own"]) as rollout:
        assert [tool["name"] for tool in rollout.tools] == TOOLS_OF["own"]
        assert rollout.call("peek", {}).content[0]["text"] == "peek {}"
    with rollouts.open(task=INDEX_OF["all"]) as rollout:
        assert rollout.tools == rollouts.environment.tools
