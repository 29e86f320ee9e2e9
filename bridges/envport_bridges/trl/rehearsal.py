"""Plays one batch with random calls, before a model is loaded, and says what would go wrong."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Any

from envport.errors import EnvportError, EpisodeFailed
from envport.tools.sampling import ArgumentSampler
from envport.types import EnvironmentInfo
from envport_bridges.trl.classes import tools_of
from envport_bridges.trl.factory import EnvironmentFactory
from envport_bridges.trl.listings import ENVIRONMENT_COLUMN
from envport_bridges.trl.observations import Shown
from envport_bridges.trl.rollout_environment import RolloutEnvironment, finish_all, play_of

__all__ = ["Rehearsal", "rehearse"]


@dataclass(frozen=True)
class Rehearsal:
    """What one batch of random calls came to.

    Attributes:
        episodes: How many episodes were played.
        ended: How many of them came to an end.
        calls: How many calls were made.
        refused: How many of them were refused, or answered with an error.
        rewards: The reward of each episode; `None` without any, and if it was lost.
        groups: How many groups there were.
        differing: In how many of them the rewards differed. GRPO learns from such groups only.
        reset_seconds: How long each reset took.
        call_seconds: How long each call took.
        longest: Characters of the longest text that a model would have been shown at once.
        problems: What would go wrong in a run, for people to read. Empty if nothing was found.
    """

    episodes: int
    ended: int
    calls: int
    refused: int
    rewards: tuple[float | None, ...]
    groups: int
    differing: int
    reset_seconds: tuple[float, ...]
    call_seconds: tuple[float, ...]
    longest: int
    problems: tuple[str, ...]

    def __str__(self) -> str:
        given = [reward for reward in self.rewards if reward is not None]
        lines = [
            f"{self.episodes} episodes with random calls, {self.ended} of them to their end",
            f"calls: {self.calls}, {self.refused} of them refused",
            f"rewards: {min(given):g} to {max(given):g} in {len(given)} episodes" if given else "rewards: none",
            f"groups whose rewards differ: {self.differing} of {self.groups} (GRPO learns from these only)",
            f"seconds of a reset: {_told(self.reset_seconds)}; of a call: {_told(self.call_seconds)}",
            f"longest text: {self.longest:,} characters",
            *(f"PROBLEM: {problem}" for problem in self.problems),
        ]
        return "\n".join(lines if self.problems else [*lines, "no problem was found"])


def _told(seconds: Sequence[float]) -> str:
    return f"median {median(seconds):.3f}, longest {max(seconds):.3f}" if seconds else "none"


@dataclass
class _Played:
    """One episode of a rehearsal."""

    row: Mapping[str, Any]
    environment: RolloutEnvironment
    rng: Random
    first: Shown = ""
    reset_seconds: float = 0.0
    call_seconds: list[float] = field(default_factory=list[float])
    longest: int = 0

    def play(self, steps: int) -> None:
        began = time.perf_counter()
        self.first = self.environment.reset(**self.row)
        self.reset_seconds = time.perf_counter() - began
        self.longest = _length(self.first)
        tools = {tool.name: tool for tool in tools_of(type(self.environment)).values()}
        samplers = {name: ArgumentSampler(tool.function["function"]["parameters"]) for name, tool in tools.items()}
        play = play_of(self.environment)
        for _ in range(steps):
            if self.environment.outcome is not None:
                return
            legal = play.legal_calls()
            if legal == []:
                return
            name, arguments = self.rng.choice(legal) if legal else self._drawn(samplers)
            began = time.perf_counter()
            try:
                self.longest = max(self.longest, _length(play.call(tools[name], dict(arguments))))
            except EpisodeFailed:
                return
            except EnvportError as refused:
                self.longest = max(self.longest, len(str(refused)))
            finally:
                self.call_seconds.append(time.perf_counter() - began)

    def _drawn(self, samplers: Mapping[str, ArgumentSampler]) -> tuple[str, dict[str, Any]]:
        name = self.rng.choice(list(samplers))
        try:
            return name, samplers[name].sample(self.rng)
        except ValueError:
            return name, {}


def _length(shown: Shown) -> int:
    return len(shown) if isinstance(shown, str) else sum(len(block.get("text", "")) for block in shown)


def rehearse(
    info: EnvironmentInfo,
    factories: Mapping[str | None, EnvironmentFactory],
    rows: Sequence[dict[str, Any]],
    *,
    episodes: int,
    num_generations: int,
    steps: int,
    seed: int,
) -> Rehearsal:
    """Play one batch; see `EnvironmentSpec.rehearse`.

    Args:
        info: The environment.
        factories: What makes instances, by the name that rows have for it.
        rows: The rows of the dataset.
        episodes: How many episodes a batch has.
        num_generations: How often each row is played.
        steps: How many calls are made in each episode, at most.
        seed: Makes the calls.
    """
    wanted = max(1, episodes // num_generations)
    batch = [row for row in rows[:wanted] for _ in range(num_generations)]
    played = [
        _Played(row, factories[row.get(ENVIRONMENT_COLUMN)](), Random(f"{seed}/{place}"))
        for place, row in enumerate(batch)
    ]
    # Threads, because an instance is reset and called as the stock trainer does it: by methods that wait.
    with ThreadPoolExecutor(len(played)) as threads:
        for playing in [threads.submit(one.play, steps) for one in played]:
            playing.result()
    finish_all([one.environment for one in played])
    environments = [one.environment for one in played]
    problems = [
        *_problems_of_size(info, len(rows), wanted, episodes),
        *_losses(environments),
        *_differences(played, num_generations),
        *_dullness(played),
    ]
    rewards = tuple(one.reward for one in environments)
    starts = range(0, len(played), num_generations)
    for one in played:
        play = play_of(one.environment)
        play.connection.loop.run(play.release())
    return Rehearsal(
        episodes=len(played),
        ended=sum(one.finished and not play_of(one).record.lost for one in environments),
        calls=sum(len(one.call_seconds) for one in played),
        refused=sum(one.errors for one in environments),
        rewards=rewards,
        groups=len(starts),
        differing=sum(len(set(rewards[at : at + num_generations]) - {None}) > 1 for at in starts),
        reset_seconds=tuple(one.reset_seconds for one in played),
        call_seconds=tuple(seconds for one in played for seconds in one.call_seconds),
        longest=max(one.longest for one in played),
        problems=tuple(problems),
    )


def _problems_of_size(info: EnvironmentInfo, rows: int, wanted: int, episodes: int) -> list[str]:
    problems: list[str] = []
    if rows < wanted:
        problems.append(
            f"the dataset has {rows} rows, and a batch takes {wanted}: TRL would train no step. Give "
            f"num_tasks={wanted} or more; tasks then come again with other seeds"
        )
    if info.limits.places is not None and info.limits.places < episodes:
        problems.append(
            f"a batch plays {episodes} episodes at once, and the gateway has places for {info.limits.places}"
        )
    return problems


def _losses(environments: Sequence[RolloutEnvironment]) -> list[str]:
    lost = Counter(one.outcome.reason for one in environments if one.outcome is not None and one.outcome.lost)
    return [
        f"{number} of {len(environments)} episodes were lost ({reason}); the log says why. They would be left out of "
        "training"
        for reason, number in lost.items()
    ]


def _differences(played: Sequence[_Played], num_generations: int) -> list[str]:
    groups = [played[start : start + num_generations] for start in range(0, len(played), num_generations)]
    whole = [[one for one in group if not play_of(one.environment).record.lost] for group in groups]
    if any(one.first != group[0].first for group in whole for one in group):
        return [
            "episodes of the same task and seed began differently, and the members of a group have to begin alike: "
            "envport check says more"
        ]
    return []


def _dullness(played: Sequence[_Played]) -> list[str]:
    whole = [one for one in played if not play_of(one.environment).record.lost]
    problems: list[str] = []
    if whole and all(one.environment.errors == len(one.call_seconds) > 0 for one in whole):
        problems.append("every call was refused, although its arguments were drawn from the tool's schema")
    if whole and all(one.environment.finished and one.environment.reward is None for one in whole):
        problems.append("every episode came to its end without a reward: there is nothing to learn from")
    return problems
