"""Whatever is done to episodes in whatever order: they are in the state that the rules say, and nothing leaks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from opening import close_episode, open_episode, start_over

from envport import Environment, Step, Task, ToolError, tool
from envport.clock import ManualClock
from envport.episodes import Episode, Episodes, Limits
from envport.errors import (
    AtCapacity,
    EnvportError,
    EpisodeFailed,
    EpisodeOver,
    InvalidArguments,
    UnknownEpisode,
    UnknownTool,
)
from envport.registry import EnvironmentDefinition

IDLE = 100.0
CAPACITY = 4


class Machine(Environment):
    max_steps = 5
    living: int = 0

    def reset(self, *, seed: int, task: Task | None) -> str:
        type(self).living += 1
        self._count = 0
        return str(self.rng.random())

    def close(self) -> None:
        type(self).living -= 1

    @tool
    def count(self) -> Step:
        self._count += 1
        return Step(self._count, reward=1.0)

    @tool
    def end(self, how: Literal["terminated", "truncated"]) -> Step:
        return Step("end", terminated=how == "terminated", truncated=how == "truncated")

    @tool
    def refuse(self) -> None:
        raise ToolError("no")

    @tool
    def crash(self) -> None:
        raise RuntimeError("crash")


@dataclass
class Known:
    """What the rules say about an episode."""

    episode: Episode
    status: str = "running"
    first: str = ""
    steps: int = 0
    counted: int = 0
    refused: int = 0
    idle: float = 0.0
    forgotten: bool = False

    @property
    def live(self) -> bool:
        return self.status == "running"


class EpisodeMachine(RuleBasedStateMachine):
    episodes = Bundle("episodes")

    def __init__(self) -> None:
        super().__init__()
        Machine.living = 0
        self.portal_manager = start_blocking_portal()
        self.portal = self.portal_manager.__enter__()
        self.clock = ManualClock()
        limits = Limits(max_episodes=CAPACITY, wait_seconds=0, idle_seconds=IDLE)
        self.table = Episodes({"machine": EnvironmentDefinition("machine", Machine)}, limits, self.clock)
        self.running = self.portal.wrap_async_context_manager(self.table.run())
        self.running.__enter__()
        self.known: list[Known] = []

    def teardown(self) -> None:
        self.running.__exit__(None, None, None)
        self.portal_manager.__exit__(None, None, None)
        assert Machine.living == 0
        assert self.table.live == 0

    def do(self, work: Callable[..., Coroutine[Any, Any, Any]], *args: Any, **kwargs: Any) -> Any:
        return self.portal.call(functools.partial(work, *args, **kwargs))

    def settle(self) -> None:
        self.do(self.clock.advance, 0)

    @property
    def live(self) -> int:
        return sum(known.live for known in self.known)

    @rule(target=episodes, seed=st.integers(0, 3))
    def open(self, seed: int) -> Known | None:
        if self.live >= CAPACITY:
            with pytest.raises(AtCapacity):
                self.do(open_episode, self.table, "machine", seed=seed)
            return None
        episode = self.do(open_episode, self.table, "machine", seed=seed)
        known = Known(episode, first=episode.first_observation.text)
        self.known.append(known)
        return known

    def call(self, known: Known, tool: str, arguments: dict[str, Any]) -> Any:
        expected: type[EnvportError] | None = None
        if known.status in ("closed", "expired"):
            expected = UnknownEpisode
        elif not known.live:
            expected = EpisodeOver
        known.idle = 0.0
        if expected is not None:
            with pytest.raises(expected):
                self.do(known.episode.call, tool, arguments)
            return None
        return self.do(known.episode.call, tool, arguments)

    def stepped(self, known: Known, result: Any, status: str = "running") -> None:
        if result is None:
            return
        known.steps += 1
        known.status = "truncated" if status == "running" and known.steps == Machine.max_steps else status
        assert result.step == known.steps
        assert (result.outcome is None) == known.live

    def remembered(self, known: Known) -> bool:
        try:
            return self.table.episode(known.episode.handle, "me") is known.episode
        except UnknownEpisode:
            return False

    @rule(known=episodes)
    def count(self, known: Known | None) -> None:
        if known is None:
            return
        result = self.call(known, "count", {})
        if result is not None:
            known.counted += 1
            # At the limit, words about the end follow.
            assert result.observation.text.split("\n")[0] == str(known.counted)
        self.stepped(known, result)

    @rule(known=episodes, how=st.sampled_from(["terminated", "truncated"]))
    def end(self, known: Known | None, how: str) -> None:
        if known is not None:
            self.stepped(known, self.call(known, "end", {"how": how}), how)

    @rule(known=episodes)
    def refuse(self, known: Known | None) -> None:
        if known is not None:
            result = self.call(known, "refuse", {})
            known.refused += result is not None
            self.stepped(known, result)

    @rule(known=episodes)
    def crash(self, known: Known | None) -> None:
        if known is None:
            return
        if not known.live:
            self.call(known, "crash", {})
            return
        with pytest.raises(EpisodeFailed):
            self.do(known.episode.call, "crash", {})
        known.status = "failed"
        known.idle = 0.0

    @rule(known=episodes)
    def call_badly(self, known: Known | None) -> None:
        if known is None:
            return
        with pytest.raises(UnknownTool):
            self.do(known.episode.call, "fly", {})
        if known.live:
            with pytest.raises(InvalidArguments):
                self.do(known.episode.call, "end", {"how": "somehow"})
            known.refused += 1
            known.idle = 0.0

    @rule(known=episodes)
    def reset(self, known: Known | None) -> None:
        if known is None:
            return
        if known.status in ("closed", "expired") or known.forgotten:
            with pytest.raises(UnknownEpisode):
                self.do(start_over, self.table, known.episode)
        elif not known.live and self.live >= CAPACITY:
            with pytest.raises(AtCapacity):
                self.do(start_over, self.table, known.episode)
        else:
            self.do(start_over, self.table, known.episode)
            known.status, known.steps, known.counted, known.refused, known.idle = "running", 0, 0, 0, 0.0
            assert known.episode.first_observation.text == known.first

    @rule(known=episodes)
    def close(self, known: Known | None) -> None:
        if known is None:
            return
        if known.forgotten:
            with pytest.raises(UnknownEpisode):
                self.do(close_episode, self.table, known.episode)
            return
        self.do(close_episode, self.table, known.episode)
        self.settle()
        if known.status != "expired":
            known.status = "closed"

    @rule(seconds=st.sampled_from([1.0, 30.0, 70.0, 120.0]))
    def time_passes(self, seconds: float) -> None:
        self.do(self.clock.advance, seconds)
        for known in self.known:
            known.idle += seconds
            # The reaper comes round every twentieth of the idle limit.
            if known.live and known.idle >= IDLE + IDLE / 20:
                known.status = "expired"
            elif known.live and known.idle >= IDLE:
                known.status = known.episode.status
            if not known.live and known.idle >= 2 * IDLE + IDLE / 20:
                known.forgotten = True
            elif not known.live and known.idle >= 2 * IDLE:
                known.forgotten = known.forgotten or not self.remembered(known)

    @invariant()
    def statuses_are_what_the_rules_say(self) -> None:
        for known in self.known:
            info = known.episode.info()
            assert info.status == known.status
            assert (info.outcome is None) == known.live
            assert (info.steps, info.errors) == (known.steps, known.refused)

    @invariant()
    def what_is_over_for_long_is_forgotten(self) -> None:
        assert [self.remembered(known) for known in self.known] == [not known.forgotten for known in self.known]

    @invariant()
    def nothing_leaks(self) -> None:
        assert self.table.live == self.live
        assert Machine.living == self.live


EpisodeMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestEpisodeMachine = EpisodeMachine.TestCase
