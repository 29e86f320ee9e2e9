"""The first difference of two trajectories."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envport.trajectories.difference import Difference, first_difference, first_difference_of_values
from envport.types import EpisodeInfo, Observation, StepRecord, Trajectory

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def seen(text: str) -> Observation:
    return Observation(content=({"type": "text", "text": text},))


def step(index: int, **fields: Any) -> StepRecord:
    said = {"tool": "move", "arguments": {"to": [1, 2]}, "observation": seen(f"at {index}")}
    return StepRecord(**{"index": index, "started_at": index * 1.5, "seconds": index / 7, **said, **fields})


def trajectory(*steps: StepRecord, first: str = "begin", dropped: int = 0) -> Trajectory:
    info = EpisodeInfo(episode_id="ep", environment="it", seed=0, status="running", created_at=0.0)
    return Trajectory(
        episode=info,
        environment_version="1",
        fingerprint="",
        first_observation=seen(first),
        steps=list(steps),
        dropped_steps=dropped,
    )


def test_equal_plays_do_not_differ_whenever_they_were():
    other = [step(number, started_at=99.0, seconds=3.0) for number in (1, 2)]
    assert first_difference(trajectory(step(1), step(2)), trajectory(*other)) is None


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"observation": seen("at 3")}, Difference(2, "$.observation.content[0].text", "at 2", "at 3")),
        ({"arguments": {"to": [1]}}, Difference(2, "$.arguments.to[1]", 2, None, "left")),
        ({"arguments": {"to": [1, 2], "a b": 1}}, Difference(2, "$.arguments['a b']", None, 1, "right")),
        ({"tool": "jump"}, Difference(2, "$.tool", "move", "jump")),
        ({"reward": 1.0}, Difference(2, "$.reward", None, 1.0)),
        ({"terminated": True}, Difference(2, "$.terminated", False, True)),
        ({"info": {"n": 1}}, Difference(2, "$.info.n", None, 1, "right")),
        ({"error": "tool_error"}, Difference(2, "$.error", None, "tool_error")),
    ],
)
def test_the_first_step_and_path_are_named(other: dict[str, Any], expected: Difference):
    one, two = trajectory(step(1), step(2), step(3)), trajectory(step(1), step(2, **other), step(3, tool="jump"))
    assert first_difference(one, two) == expected


def test_the_first_observation_comes_first_and_an_end_is_a_difference():
    assert first_difference(trajectory(), trajectory(first="else")) == Difference(
        0, "$.content[0].text", "begin", "else"
    )
    found = first_difference(trajectory(step(1)), trajectory(step(1), step(2)))
    assert found is not None
    assert (found.step, found.path, found.only, found.right["tool"]) == (2, "$", "right", "move")


def test_of_shortened_recordings_the_common_part_is_compared():
    whole, short = trajectory(step(1), step(2), step(3)), trajectory(step(3), first="not kept", dropped=2)
    assert first_difference(whole, short) is None
    assert first_difference(short, whole) is None
    changed = trajectory(step(3, tool="jump"), dropped=2)
    assert first_difference(whole, changed) == Difference(3, "$.tool", "move", "jump")


def test_deep_values_and_kinds_of_numbers():
    deep: Any = 1
    for _ in range(50_000):
        deep = [deep]
    assert first_difference_of_values({"x": deep}, {"x": deep}, 1) is None
    assert first_difference_of_values(1, 1.0, 1) is None
    assert first_difference_of_values(1, True, 1) == Difference(1, "$", 1, True)
    assert first_difference_of_values(float("nan"), float("nan"), 1) is None


@given(JSON, JSON)
def test_there_is_a_difference_exactly_if_they_are_not_equal_and_it_is_symmetric(left: Any, right: Any):
    found, turned = first_difference_of_values(left, right, 1), first_difference_of_values(right, left, 1)
    assert (found is None) == (turned is None)
    assert first_difference_of_values(left, json.loads(json.dumps(left)), 1) is None
    if json.dumps(left) == json.dumps(right):
        assert found is None
    if found is not None and turned is not None and found.only is None:
        assert json.dumps([found.left, found.right]) != json.dumps([found.right, found.left])


def test_a_score_counts_after_all_steps():
    scored = [trajectory(step(1)), trajectory(step(1))]
    scored[1] = scored[1].model_copy(update={"episode": scored[1].episode.model_copy(update={"score": 0.5})})
    assert first_difference(*scored) == Difference(1, "$.episode.score", None, 0.5)
