"""What Gymnasium's `step` and `reset` return is refused by name: its reward and info are not for the player."""

import logging
from collections import namedtuple
from typing import Any

import pytest
from opening import open_episode
from runtimes import KINDS, serving
from slow import slow

from envport import Environment, Step, tool
from envport.environment import RuntimeKind
from envport.errors import EpisodeFailed
from envport.registry import EnvironmentDefinition


class Number:
    """Looks like a number of NumPy's."""

    def __float__(self) -> float:
        return 0.5


STEPS: dict[str, Any] = {
    "plain": ("seen", 0.25, False, True, {}),
    "numpy": ([1, 2], Number(), type("bool_", (), {})(), False, {"why": 1}),
    "old": ("seen", 1, True, {}),
}
OBSERVATIONS: dict[str, Any] = {
    "list": ["seen", 0.25, False, True, {}],
    "numbers": ("seen", 1, 2, 3, {}),
    "no reward": ("seen", "a", False, False, {}),
    "no info": ("seen", 1, False, False, "b"),
    "named": namedtuple("Seen", "a b c d e")("seen", 1.0, False, True, {}),
    "pair": ("seen", {"a": 1}),
    "step": Step(("seen", {"a": 1})),
}
FIRST: dict[str, Any] = {"pair": ("begin", {}), "list": ["begin", {"a": 1}], "two": ("begin", "now"), "one": ("begin",)}


class Ported(Environment):
    """Taken over from Gymnasium."""

    def __init__(self, first: str = "list"):
        self._first = first

    def reset(self, **_: Any) -> Any:
        return FIRST[self._first]

    @tool
    def step(self, what: str) -> Any:
        """Step."""
        return (STEPS | OBSERVATIONS)[what]


@pytest.mark.parametrize("kind", ["inline", *slow(["thread", "process"])])
@pytest.mark.parametrize("what", STEPS)
async def test_a_step_tuple_is_refused_with_the_remedy(kind: RuntimeKind, what: str, caplog: pytest.LogCaptureFixture):
    async with serving(EnvironmentDefinition("ported", Ported), runtime=kind) as episodes:
        episode = await open_episode(episodes, "ported")
        with caplog.at_level(logging.ERROR), pytest.raises(EpisodeFailed):
            await episode.call("step", {"what": what})
        assert episode.outcome is not None
        assert episode.outcome.reason == "environment_error"
    ends = "done" if what == "old" else "terminated, truncated"
    assert f"the tool returned Gymnasium's tuple (observation, reward, {ends}, info): return Step(" in caplog.text


@pytest.mark.parametrize("what", OBSERVATIONS)
async def test_other_tuples_are_lists_of_observations(what: str):
    async with serving(EnvironmentDefinition("ported", Ported)) as episodes:
        episode = await open_episode(episodes, "ported")
        assert (await episode.call("step", {"what": what})).observation.content[0]["text"] == "seen"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_reset_pair_is_refused_with_the_remedy(kind: RuntimeKind, caplog: pytest.LogCaptureFixture):
    async with serving(EnvironmentDefinition("ported", Ported, {"first": "pair"}), runtime=kind) as episodes:
        with caplog.at_level(logging.ERROR), pytest.raises(EpisodeFailed):
            await open_episode(episodes, "ported")
    assert "reset() returned a pair like Gymnasium's (observation, info): return only the observation" in caplog.text


@pytest.mark.parametrize("first", [name for name in FIRST if name != "pair"])
async def test_other_first_observations_are_taken(first: str):
    async with serving(EnvironmentDefinition("ported", Ported, {"first": first})) as episodes:
        assert (await open_episode(episodes, "ported")).first_observation.content[0]["text"] == "begin"
