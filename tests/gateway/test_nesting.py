"""Data that is nested deeply: clients' parsers have a limit, and nothing beyond it may reach them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from harness import ERAS, Era, RunningGateway, connect, running

from envport import Client, Environment, Observation, Step, Task, tool
from envport.blocks import MOST_NESTED
from envport.errors import EpisodeFailed, InvalidArguments
from envport.registry import EnvironmentDefinition
from envport_bridges.rollouts import Rollouts

MOST = MOST_NESTED - 1  # The outermost level is an object.


def nested(levels: int) -> dict[str, Any]:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return {"value": value}


class Deep(Environment):
    """Returns data that is nested as deeply as it is told."""

    def splits(self) -> dict[str, list[Task]]:
        return {"train": [Task(id="flat"), Task(id="deep", metadata=nested(3 * MOST))]}

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "ready"

    @tool
    def data(self, levels: int) -> dict[str, Any]:
        """Return data."""
        return nested(levels)

    @tool
    def observation(self, levels: int) -> Observation:
        """Return an observation with data."""
        return Observation(structured_content=nested(levels))

    @tool
    def take(self, value: dict[str, Any]) -> Step:
        """Take data, and put it into the diagnostics."""
        return Step("taken", info=value)


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with running(EnvironmentDefinition("deep", Deep)) as gateway:
        yield gateway


@pytest.mark.parametrize("tool", ["data", "observation"])
@pytest.mark.parametrize("era", ERAS)
async def test_what_is_shown_can_be_read_and_the_rest_is_a_fault_of_the_environment(
    gateway: RunningGateway, era: Era, tool: str
):
    with Client(gateway.url) as control:
        episode = control.open("deep")
        async with connect(episode.mcp_url, era) as client:
            shown = await client.call_tool(tool, {"levels": MOST})
            assert shown.structured_content == nested(MOST)
            refused = await client.call_tool(tool, {"levels": MOST + 1})
        assert refused.is_error
        state = control.episode(episode.episode_id)
        assert (state.status, state.outcome and state.outcome.fault) == ("failed", "environment")
        steps = control.trajectory(episode.episode_id).steps
        assert steps[0].observation.structured_content == nested(MOST)


def test_a_trainer_s_other_episodes_on_the_same_connection_go_on(gateway: RunningGateway):
    rollouts = Rollouts(f"{gateway.url}/environments/deep")
    deep, other = rollouts.open(), rollouts.open()
    assert deep.call("data", {"levels": MOST}).structured == nested(MOST)
    with pytest.raises(EpisodeFailed) as failed:
        deep.call("data", {"levels": MOST + 1})
    assert failed.value.fault == "environment"
    assert other.call("data", {"levels": 1}).structured == nested(1)


@pytest.mark.parametrize(("levels", "taken"), [(MOST - 2, True), (MOST + 10, True), (3 * MOST, False)])
def test_calls_are_recorded_with_what_of_them_can_be_read(gateway: RunningGateway, levels: int, taken: bool):
    with Client(gateway.url) as control, Rollouts(f"{gateway.url}/environments/deep").open() as played:
        if taken:
            played.call("take", {"value": nested(levels)})
        else:
            with pytest.raises(InvalidArguments, match="recursion limit exceeded"):
                played.call("take", {"value": nested(levels)})
        (step,) = control.trajectory(control.episodes(limit=1)[0].episode_id).steps
    assert (step.tool, step.error) == ("take", None if taken else "invalid_arguments")
    whole = levels < MOST - 1
    assert step.arguments == ({"value": nested(levels)} if whole else {})
    assert step.info == (nested(levels) if whole else {})


def test_a_task_whose_metadata_cannot_be_read_can_be_played(gateway: RunningGateway):
    with Client(gateway.url) as control:
        _, shown = control.tasks("deep").tasks
        assert shown.metadata == {"envport/unshown": "this metadata cannot be written as JSON"}
        episode = control.open("deep", split="train", task=1)
        assert control.episode(episode.episode_id).status == "running"
