"""Where two trajectories differ first."""

from __future__ import annotations

from typing import Any

import pytest

from envport.tools.content import text_observation
from envport.trajectories.difference import ABSENT, first_difference
from envport.types import EpisodeInfo, Observation, StepRecord, Trajectory


def step(index: int, **changed: Any) -> StepRecord:
    given = {"tool": "move", "arguments": {"to": "left"}, "observation": text_observation(f"step {index}")}
    return StepRecord(index=index, **given | changed)


def trajectory(*steps: StepRecord, first: str = "begin", score: float | None = None) -> Trajectory:
    info = EpisodeInfo(episode_id="ep", environment="e", seed=1, status="running", created_at=0.0, score=score)
    return Trajectory(
        episode=info,
        environment_version="1",
        fingerprint="f",
        first_observation=text_observation(first),
        steps=list(steps),
    )


A = trajectory(step(1), step(2, reward=1.0, info={"a b": [1, True]}), score=0.5)
DATA = Observation(structured_content={"x": {"y": 1}})


@pytest.mark.parametrize(
    ("other", "at", "path", "first", "second"),
    [
        (trajectory(step(1), first="start"), 0, "$.first_observation.content[0].text", "begin", "start"),
        (trajectory(step(1, tool="turn")), 1, "$.tool", "move", "turn"),
        (trajectory(step(1, arguments={})), 1, "$.arguments.to", "left", ABSENT),
        (trajectory(step(1, arguments={"to": "left", "ä": 1})), 1, "$.arguments.ä", ABSENT, 1),
        (trajectory(step(1, observation=Observation())), 1, "$.observation.content[0]", ..., ABSENT),
        (trajectory(step(1, observation=DATA)), 1, "$.observation.content[0]", ..., ABSENT),
        (trajectory(step(1), step(2)), 2, "$.reward", 1.0, None),
        (trajectory(step(1), step(2, reward=1.0)), 2, "$.info['a b']", [1, True], ABSENT),
        (trajectory(step(1), step(2, reward=1.0, info={"a b": [True, True]})), 2, "$.info['a b'][0]", 1, True),
        (trajectory(step(1), step(2, reward=1.0, info={"a b": [1]})), 2, "$.info['a b'][1]", True, ABSENT),
        (trajectory(step(1)), 2, "$", ..., ABSENT),
        (trajectory(*A.steps, step(3)), 3, "$", ABSENT, ...),
        (trajectory(*A.steps), 2, "$.episode.score", 0.5, None),
    ],
)
def test_the_first_difference_is_named(other: Trajectory, at: int, path: str, first: Any, second: Any):
    found = first_difference(A, other)
    assert found is not None
    assert (found.step, found.path) == (at, path)
    assert first is ... or (found.first, type(found.first)) == (first, type(first))
    assert second is ... or (found.second, type(found.second)) == (second, type(second))


def test_times_handles_and_ways_to_end_are_no_difference():
    steps = [one.model_copy(update={"started_at": 7.0, "seconds": 3.0}) for one in A.steps]
    info = A.episode.model_copy(update={"episode_id": "ep_other", "status": "closed", "labels": {"run": "x"}})
    assert first_difference(A, A.model_copy(update={"steps": steps, "episode": info})) is None
