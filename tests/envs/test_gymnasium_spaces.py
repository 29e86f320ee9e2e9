"""Every kind of action space of Gymnasium has a tool whose arguments are its actions."""

from __future__ import annotations

import re
from typing import Any

import pytest
from opening import open_episode
from runtimes import serving
from slow import slow

from envport import ToolError
from envport.checker import check_environment
from envport.errors import EpisodeFailed, InvalidArguments, InvalidEnvironment
from envport.registry import EnvironmentDefinition, load

pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")


def spaces(space: str, **more: Any) -> EnvironmentDefinition:
    reference = "it=gymnasium:gymnasium_environments:Spaces-v0"
    return load(reference, options={"arguments": {"space": space, **more}})


@pytest.mark.parametrize(
    "space", ["numbers", "text", "named", *slow(["discrete", "wide", "matrix", "several", "bits", "pair"])]
)
def test_every_action_space_passes_the_checker(space: str) -> None:
    report = check_environment(spaces(space, places=50), seeds=range(2), steps=20, another_process=False)
    assert report.findings == []
    assert report.rejected == 0


@pytest.mark.parametrize(
    ("space", "arguments", "given"),
    [
        ("discrete", {"action": -1}, "-1"),
        ("discrete", {"action": 1.0}, "1"),
        ("meant", {"action": "fire"}, "6"),
        ("meant in part", {"action": 2}, "2"),
        ("numbers", {"action_0": -1, "action_1": 0.4}, "array([-1. ,  0.4], dtype=float32)"),
        ("unbounded", {"action": -3e38}, "array([-3.e+38], dtype=float32)"),
        ("matrix", {"action": [[0, 1, 2], [7, 8, 9]]}, "array([[0, 1, 2],\n       [7, 8, 9]], dtype=int8)"),
        ("several", {"action_0": 1, "action_1": 7}, "array([1, 7])"),
        ("bits", {"action_0": 1, "action_1": 0, "action_2": 1}, "array([1, 0, 1], dtype=int8)"),
        ("text", {"action": "]^-\\"}, "'" + "]^-" + r"\\'"),
        ("pair", {"action_0": 1, "action_1": [2, -2]}, "(1, array([ 2., -2.], dtype=float32))"),
        (
            "named",
            {"where": 3, "how": {"fast": 1, "along": [[1, 0]]}},
            "{'how': {'along': (array([1, 0]),), 'fast': 1}, 'where': 3}",
        ),
    ],
)
async def test_each_space_gets_its_action(space: str, arguments: dict[str, Any], given: str) -> None:
    async with serving(spaces(space)) as episodes:
        episode = await open_episode(episodes, "it")
        assert (await episode.call("act", arguments)).observation.text == given


@pytest.mark.parametrize(
    ("space", "arguments", "complaint"),
    [
        ("discrete", {"action": 2}, "it has to be an integer at least -1, at most 1"),
        ("discrete", {"action": 10**30}, "it has to be an integer at least -1, at most 1"),
        ("discrete", {"action": "1"}, "it has to be an integer at least -1, at most 1"),
        ("discrete", {"action": 0.5}, "it has to be an integer at least -1, at most 1"),
        (
            "numbers",
            {"action_0": 0, "action_1": 0.3},
            "'action_1' is 0.3; it has to be a number at least 0.4, at",
        ),
        (
            "numbers",
            {"action_0": "0", "action_1": 0.4},
            "'action_0' is \"0\"; it has to be a number",
        ),
        ("numbers", {"action_0": 0}, "'action_1' is missing"),
        ("matrix", {"action": [[0, 1, 2]]}, "'action'"),
        (
            "matrix",
            {"action": [[0, 1, 2], [3, 4, 10]]},
            "'action' at 1.2 is 10; it has to be an integer at least 0",
        ),
        ("several", {"action_0": 1, "action_1": 4}, "'action_1' is 4; it has to be an integer at least 5, at most 7"),
        (
            "bits",
            {"action_0": 2, "action_1": 0, "action_2": 1},
            "'action_0' is 2; it has to be an integer at least 0",
        ),
        ("text", {"action": "abc"}, "'action'"),
        ("text", {"action": ""}, "'action'"),
        ("pair", {"action_0": 1, "action_1": [2, -2, 0]}, "'action_1'"),
        ("named", {"where": 3, "how": {"fast": 1}}, "'how' at along is missing"),
    ],
)
async def test_what_is_outside_of_a_space_is_refused(space: str, arguments: dict[str, Any], complaint: str) -> None:
    async with serving(spaces(space)) as episodes:
        episode = await open_episode(episodes, "it")
        with pytest.raises(InvalidArguments, match=re.escape(complaint)):
            await episode.call("act", arguments)
        assert episode.live


async def test_a_number_that_the_space_cannot_hold_is_refused() -> None:
    async with serving(spaces("unbounded")) as episodes:
        episode = await open_episode(episodes, "it")
        for number in (1e300, -1e39, 10**500):
            result = await episode.call("act", {"action": number})
            assert result.is_error
            assert "This action is not one of the environment's. Its actions are: Box(-inf, inf, (1,), float32)." in (
                result.observation.text
            )
        assert (await episode.call("act", {"action": 1e38})).reward == 1.0


async def test_what_only_the_space_knows_is_refused_too() -> None:
    async with serving(spaces("uneven")) as episodes:
        episode = await open_episode(episodes, "it")
        result = await episode.call("act", {"action": [[0, 0], [0, 4]]})
        assert (result.reward, result.is_error) == (1.0, False)
        result = await episode.call("act", {"action": [[4, 0], [0, 0]]})
        assert result.is_error
        assert "This action is not one of the environment's" in result.observation.text


def test_a_space_that_no_arguments_can_have_is_refused() -> None:
    with pytest.raises(InvalidEnvironment, match=r"action space Graph\(.*; supported: Discrete, Box, MultiDiscrete"):
        spaces("graph")


async def test_a_mistake_of_the_engine_is_a_fault_of_the_environment() -> None:
    async with serving(spaces("discrete", broken=True)) as episodes:
        episode = await open_episode(episodes, "it")
        with pytest.raises(EpisodeFailed):
            await episode.call("act", {"action": 0})
        assert episode.outcome is not None
        assert (episode.outcome.reason, episode.outcome.fault) == ("environment_error", "environment")


def test_a_step_after_the_end_does_not_reach_the_engine() -> None:
    environment: Any = spaces("discrete", places=1).make()
    environment.reset(seed=0, task=None)
    assert environment.act("act", {"action": 0}).terminated
    with pytest.raises(ToolError, match="The episode is over"):
        environment.act("act", {"action": 0})


async def test_a_large_seed_is_one_that_every_engine_takes() -> None:
    async with serving(spaces("discrete")) as episodes:
        assert (await open_episode(episodes, "it", seed=2**63 - 1)).first_observation.text == "ready"


async def test_what_the_engine_says_beside_the_observation_is_in_the_trajectory_alone() -> None:
    async with serving(spaces("discrete")) as episodes:
        episode = await open_episode(episodes, "it")
        result = await episode.call("act", {"action": 0})
        assert result.observation.text == "0"
        (step,) = (await episode.trajectory()).steps
        assert step.info == {"odd": ["nan", "inf"], "kept": [0, 1]}


async def test_the_environment_is_closed_with_its_episode() -> None:
    from gymnasium_environments import CLOSED

    CLOSED.clear()
    async with serving(spaces("discrete")) as episodes:
        await open_episode(episodes, "it")
    assert len(CLOSED) == 1
