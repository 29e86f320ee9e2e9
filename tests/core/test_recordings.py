"""Recorded episodes, played again."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from envport import Environment, Step, Task, ToolError, tool
from envport.checker.recordings import replayer
from envport.definition import EnvironmentDefinition
from envport.episodes import Episodes, OpenRequest
from envport.errors import InvalidArguments, InvalidRequest
from envport.registry import load
from envport.trajectories.difference import first_difference
from envport.types import Choice, Trajectory

played = 0


class Dice(Environment):
    """Throws dice."""

    max_steps = 4

    def __init__(self, honest: bool = True):
        self.honest = honest

    def splits(self) -> Any:
        return {"train": [Task(id=f"d{sides}", prompt=f"A die of {sides}.", metadata={"n": sides}) for sides in (6, 9)]}

    def reset(self, *, seed: int, task: Task | None) -> str:
        assert task is not None
        self.sides = task.metadata["n"]
        self.thrown = 0
        return f"It has {self.sides} sides."

    @tool
    def throw(self, how: Literal["high", "low"] = "low") -> Step[str]:
        """Throw."""
        global played
        played += 1
        self.thrown += self.rng.randint(1, self.sides) if self.honest else played
        return Step(f"{how}: {self.thrown}", reward=float(self.thrown))

    @tool
    def cheat(self) -> str:
        """Cheat."""
        raise ToolError("No.")

    def score(self) -> float:
        return self.thrown / 100


HONEST, LOADED = load(f"{__name__}:Dice"), load(f"{__name__}:Dice?honest=false")
CALLS = [("throw", {"how": "high"}), ("throw", {"how": "far"}), ("cheat", {}), ("throw", {})]


async def play(spec: EnvironmentDefinition, calls: Any = CALLS, choice: Choice = Choice(task=1, seed=5)) -> Trajectory:  # noqa: B008
    episodes = Episodes({spec.name: spec})
    async with episodes.run():
        episode = await episodes.open_episode(OpenRequest(spec.name, "anyone", choice))
        for name, arguments in calls:
            try:
                await episode.call(name, arguments)
            except InvalidArguments:
                continue
        await episode.finish()
        return await episodes.trajectory(episode.handle, "anyone")


async def replayed(spec: EnvironmentDefinition, recorded: Trajectory) -> Trajectory:
    async with replayer(spec) as player:
        return await player.play(recorded)


async def test_the_same_task_and_seed_give_the_same_episode():
    recorded = await play(HONEST)
    assert [step.error for step in recorded.steps] == [None, "invalid_arguments", "tool_error", None]
    again = await replayed(HONEST, recorded)
    assert first_difference(recorded, again) is None
    assert again.episode.score == recorded.episode.score
    assert again.episode.episode_id != recorded.episode.episode_id


async def test_an_environment_that_depends_on_what_ran_before_differs():
    found = first_difference(recorded := await play(LOADED), await replayed(LOADED, recorded))
    assert found is not None
    assert (found.step, found.path) == (1, "$.observation.content[0].text")


async def test_the_last_words_at_a_limit_are_the_same():
    recorded = await play(HONEST, [("throw", {})] * 4)
    assert "limit" in recorded.steps[-1].observation.text
    assert first_difference(recorded, await replayed(HONEST, recorded)) is None


async def test_a_replay_that_ends_early_differs_there():
    recorded = await play(HONEST, [("throw", {})] * 4)
    longer = recorded.model_copy(update={"steps": [*recorded.steps, recorded.steps[0]]})
    found = first_difference(longer, await replayed(HONEST, longer))
    assert found is not None
    assert (found.step, found.path) == (5, "$")


async def test_a_task_of_the_caller_s_own_is_played_again():
    recorded = await play(HONEST, choice=Choice(task={"id": "own", "metadata": {"n": 3}}, seed=2))
    assert recorded.episode.task_index is None
    assert first_difference(recorded, await replayed(HONEST, recorded)) is None


async def test_what_cannot_be_replayed_says_why():
    recorded = await play(HONEST)
    info, task = recorded.episode, recorded.episode.task
    assert task is not None
    broken = recorded.steps[0].model_copy(update={"error": "unreadable"})
    other = info.model_copy(update={"task": task.model_copy(update={"id": "d8"})})
    for changed, why in (
        ({"dropped_steps": 3}, "the first 3 calls"),
        ({"steps": [broken]}, "cannot be read"),
        ({"episode": info.model_copy(update={"seed": None})}, "seed"),
        ({"episode": other}, "task 1 of split 'train' is 'd9' here, and was 'd8'"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            await replayed(HONEST, recorded.model_copy(update=changed))
