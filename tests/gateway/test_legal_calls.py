"""`legal_calls()`: who is told which calls make sense, in every runtime, and what the checker makes of it."""

from __future__ import annotations

import itertools
from functools import partial
from random import Random
from typing import Any

import httpx2
import pytest
from harness import connect, running
from slow import slow

from envport import AsyncClient, Client, Environment, Step, Task, ToolError, tool
from envport.checker import CheckReport, examine
from envport.environment import RuntimeKind
from envport.episodes import Episodes, OpenRequest
from envport.errors import EpisodeFailed, EpisodeOver
from envport.registry import EnvironmentDefinition, load
from envport_bridges.agents.programs.seat import Seat
from envport_bridges.evaluation.players.policies import View, play_policy, random_calls

RUNTIMES: list[RuntimeKind] = ["inline", "thread", "process"]


class Lock(Environment):
    """Open the lock: three right words, which only legal_calls() knows."""

    def reset(self, *, seed: int, task: Task | None) -> str:
        self.words = [f"word-{self.rng.randrange(10**9)}" for _ in range(3)]
        return "locked"

    @tool
    def say(self, word: str) -> Step:
        """Say a word."""
        if word != self.words[0]:
            raise ToolError("Wrong.")
        self.words.pop(0)
        return Step("Right.", reward=1.0, terminated=not self.words)

    def legal_calls(self) -> Any:
        return [("say", {"word": self.words[0]})]


class Silent(Lock):
    """Does not say which calls make sense."""

    legal_calls = Environment.legal_calls


class Later(Lock):
    """Says it in a coroutine."""

    async def legal_calls(self) -> Any:
        return tuple(super().legal_calls())


class Broken(Lock):
    """Says it wrongly."""

    def legal_calls(self) -> Any:
        return ["say"]


class Short(Lock):
    """Leaves the arguments out."""

    def legal_calls(self) -> Any:
        return [("say",)]


class Endless(Lock):
    """Returns an iterator, which may have no end."""

    def legal_calls(self) -> Any:
        return (("say", {"word": str(number)}) for number in itertools.count())


class Unwritable(Lock):
    """Names what no answer can hold."""

    def legal_calls(self) -> Any:
        return [("say", {"word": "a\ud800"})]


class Schemaless(Lock):
    """Names what the schema refuses."""

    def legal_calls(self) -> Any:
        return [("say", {"word": 3})]


class Unknown(Lock):
    """Names no tool of its own."""

    def legal_calls(self) -> Any:
        return [("shout", {})]


class Refusing(Lock):
    """Refuses what it named."""

    def legal_calls(self) -> Any:
        return [("say", {"word": "open"})]


class Stuck(Lock):
    """Names nothing."""

    def legal_calls(self) -> Any:
        return []


class Shared(Lock):
    """Depends on the instance."""

    def legal_calls(self) -> Any:
        return [*super().legal_calls(), ("say", {"word": str(id(self))})]


def defined(cls: type[Environment]) -> EnvironmentDefinition:
    return EnvironmentDefinition(cls.__name__.lower(), cls)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("cls", [*slow([Lock]), Later])
async def test_every_runtime_says_which_calls_make_sense_now(runtime: RuntimeKind, cls: type[Environment]):
    name = cls.__name__.lower()
    episodes = Episodes({name: defined(cls)}, runtime=runtime)
    async with episodes.run():
        opened = await episodes.open(OpenRequest(name, "me"))
        found = episodes.find(opened.handle, "me")
        said: list[Any] = []
        for _ in range(3):
            legal = await episodes.legal_calls(found)
            assert legal is not None
            said += legal
            assert (await episodes.call(found, *legal[0])).reward == 1.0
        assert len({call[1]["word"] for call in said}) == 3
        with pytest.raises(EpisodeOver):
            await episodes.legal_calls(found)
        # Asking is no step of the task.
        assert (await episodes.info(opened.handle, "me")).steps == 3


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("cls", [Broken, *slow([Endless, Unwritable])])
async def test_a_wrong_answer_is_a_fault_of_the_environment(runtime: RuntimeKind, cls: type[Environment]):
    episodes = Episodes({"broken": EnvironmentDefinition("broken", cls)}, runtime=runtime)
    async with episodes.run():
        opened = await episodes.open(OpenRequest("broken", "me"))
        with pytest.raises(EpisodeFailed):
            await episodes.legal_calls(episodes.find(opened.handle, "me"))
        info = await episodes.info(opened.handle, "me")
    assert info.outcome is not None
    assert info.outcome.infrastructure


async def test_the_owner_is_told_and_the_player_is_not():
    with running(defined(Lock), defined(Silent)) as gateway:
        async with AsyncClient(gateway.url) as control:
            opened = await control.open("lock", reward_in_meta=True)
            ((name, arguments),) = await control.legal_calls(opened.episode_id) or []
            assert (name, list(arguments)) == ("say", ["word"])
            assert await control.legal_calls((await control.open("silent")).episode_id) is None
        async with connect(opened.mcp_url, "modern") as player:
            said = f"{await player.list_tools()}{await player.call_tool('say', {'word': 'x'})}{player.instructions}"
            assert arguments["word"] not in said
        with Client(gateway.url) as control:
            assert control.legal_calls(opened.episode_id) == [(name, arguments)]
            control.close_episode(opened.episode_id)
        assert httpx2.get(f"{gateway.url}/episodes/{opened.episode_id}/legal-calls").status_code == 404


@pytest.mark.parametrize(("name", "reward"), [("lock", 3.0), ("silent", None)])
async def test_the_random_policy_draws_from_them(name: str, reward: float | None):
    with running(defined(Lock), defined(Silent)) as gateway:
        async with AsyncClient(gateway.url) as control:
            opened = await control.open(name)
            async with Seat.at(opened.mcp_url, None) as seat:
                view = View(name, opened.prompt, seat.tools, "", Random(0))
                legal = partial(control.legal_calls, opened.episode_id)
                await play_policy(random_calls, view, seat, 20, legal)
            assert (await control.episode(opened.episode_id)).reward == reward


async def checked(cls: type[Environment]) -> CheckReport:
    return await examine(defined(cls), another_process=False)


async def test_the_checker_draws_from_them():
    report = await checked(Lock)
    assert report.ok, report
    assert report.rejected < report.sampled / 2


async def test_the_checker_does_not_pass_what_it_could_hardly_play():
    report = await checked(Silent)
    assert [finding.check for finding in report.findings if finding.level == "error"] == ["coverage"]
    assert "90 of 90 sampled calls were refused, so the environment was hardly played: say in legal_calls()" in str(
        report
    )


@pytest.mark.parametrize(
    ("cls", "complaint"),
    [
        (Broken, r"error \[legal_calls\] legal_calls\(\) fails: .*has to return \(tool, arguments\) pairs, not 'say'"),
        (Short, r"error \[legal_calls\] .*has to return \(tool, arguments\) pairs, not \('say',\)"),
        (Endless, r"error \[legal_calls\] .*has to return a sequence of \(tool, arguments\) pairs, not <generator"),
        (Unwritable, r"error \[legal_calls\] .*cannot be shown: it contains the lone surrogate '.ud800'"),
        (Schemaless, r'error \[legal_calls\] .*names say\({"word": 3}\), which the tool\'s schema refuses'),
        (Unknown, r"error \[legal_calls\] .*names the tool 'shout', which there is not"),
        (Refusing, r'warning \[legal_calls\] .*names say\({"word": "open"}\), which is refused: Wrong.'),
        (Stuck, r"warning \[legal_calls\] legal_calls\(\) names no call, but the episode goes on"),
        (Shared, r"error \[legal_calls\] legal_calls\(\) differs between two instances"),
    ],
)
async def test_the_checker_finds_wrong_ones(cls: type[Environment], complaint: str):
    import re

    assert re.search(complaint, str(await checked(cls)))


@pytest.mark.parametrize("name", ["sudoku", *slow(["wordle"])])
async def test_the_built_in_ones_that_refuse_much_say_which_calls_make_sense(name: str):
    report = await examine(load(name), another_process=False)
    assert not report.findings
    assert report.rejected < report.sampled / 2
