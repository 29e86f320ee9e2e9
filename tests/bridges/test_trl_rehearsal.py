"""One batch of random calls says what would go wrong in a run."""

from __future__ import annotations

import os

import pytest
from harness import running

from envport import Environment, Step, Task, ToolError, tool
from envport.episodes import Limits
from envport.registry import EnvironmentDefinition
from envport.types import LegalCall
from envport_bridges.trl import EnvironmentSpec


class Doors(Environment):
    """Only one door is open, and only it is worth something."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        self.door = self.rng.randrange(10**9)
        return f"Door {self.door} is open."

    def legal_calls(self) -> list[LegalCall]:
        return [("enter", {"door": self.door})]

    @tool
    def enter(self, door: int) -> Step[str]:
        """Enter."""
        if door != self.door:
            raise ToolError("That door is closed.")
        return Step("You are in.", reward=1.0, terminated=True)


class Closed(Doors):
    """Refuses everything."""

    legal_calls = Environment.legal_calls

    @tool
    def enter(self, door: int) -> Step[str]:
        """Enter."""
        raise ToolError("That door is closed.")


class Unseeded(Doors):
    """Begins differently each time."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        self.door = int.from_bytes(os.urandom(4), "big")
        return f"Door {self.door} is open."


class Breaking(Doors):
    """Breaks."""

    @tool
    def enter(self, door: int) -> Step[str]:
        """Enter."""
        raise RuntimeError("broken")


class Worthless(Doors):
    """Ends without a reward."""

    @tool
    def enter(self, door: int) -> Step[str]:
        """Enter."""
        return Step("You are in.", terminated=True)


@pytest.mark.parametrize("where", ["here", "at a gateway"])
def test_legal_calls_are_played_and_counted(where: str):
    with running(EnvironmentDefinition("doors", Doors)) as gateway:
        target = f"{__file__}:Doors" if where == "here" else f"{gateway.url}/environments/doors"
        told = EnvironmentSpec(target).rehearse(6, num_generations=3)
        assert (told.episodes, told.ended, told.calls, told.refused) == (6, 6, 6, 0)
        assert (told.rewards, told.groups, told.differing, told.problems) == ((1.0,) * 6, 2, 0, ())
        assert len(told.reset_seconds) == len(told.call_seconds) == 6
        assert str(told).endswith("no problem was found")
        if where != "here":
            assert gateway.gateway.table.live == 0


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Closed", "every call was refused"),
        ("Unseeded", "episodes of the same task and seed began differently"),
        ("Breaking", "8 of 8 episodes were lost (environment_error)"),
        ("Worthless", "every episode came to its end without a reward"),
    ],
)
def test_each_problem_is_named(name: str, problem: str):
    told = EnvironmentSpec(f"{__file__}:{name}").rehearse(steps=3)
    (found,) = told.problems
    assert found.startswith(problem)
    assert f"PROBLEM: {problem}" in str(told)
    # An episode that was lost came to no end.
    assert told.ended == (8 if name in ("Unseeded", "Worthless") else 0)


def test_a_dataset_and_a_gateway_that_are_too_small_are_named():
    with running(EnvironmentDefinition("doors", Doors), limits=Limits(max_episodes=3)) as gateway:
        spec = EnvironmentSpec(f"{gateway.url}/environments/doors", num_tasks=1, patience=0.0)
        told = spec.rehearse(8, num_generations=4)
        assert told.problems[0].startswith("the dataset has 1 rows, and a batch takes 2: TRL would train no step")
        assert told.problems[1] == "a batch plays 8 episodes at once, and the gateway has places for 3"
