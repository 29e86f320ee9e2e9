"""What an audit finds, in the words of OpenEnv's RFC 008 where it has one.

| check | passes if |
|---|---|
| `oracle_max` | the reference solution of each task earns what it says |
| `floor_gap` | the reference, or the declared ceiling, lies above the floor |
| `adversarial_floor` | no cheat, and nobody, earns more than the floor with its interval |
| `stalling` | making no call earns no more than the worst end of a game, or the environment says why it does |
| `replayability` | the same calls earn and show the same again, for the same task and seed |
| `leakage` | no task of one split is in another one |
| `masking` | no cheat makes its episode one that does not count |
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from envport.definition import EnvironmentDefinition
from envport.environment import Solution
from envport_bridges.audit.players import Kind
from envport_bridges.audit.playing import Played
from envport_bridges.evaluation.intervals import Estimate, mean_of

__all__ = [
    "AuditFinding",
    "Floor",
    "PlayerFigures",
    "adversarial",
    "floor_of",
    "gap",
    "leakage",
    "masking",
    "oracle",
    "replay",
    "stalling",
]

_PRECISION = 1e-9
_MOST_COMPARED = 2_000
_MOST_NAMED = 3


@dataclass(frozen=True)
class AuditFinding:
    """The result of a check.

    Attributes:
        check: The check.
        status: Whether it passed; `skip` if it could not be made.
        message: What was found.
    """

    check: str
    status: Literal["pass", "fail", "skip"]
    message: str


@dataclass(frozen=True)
class PlayerFigures:
    """What a player earned.

    Attributes:
        name: The player.
        kind: What its reward says.
        episodes: How many episodes counted.
        lost: How many were lost to faults.
        reward: The mean reward, with its 95% interval.
        lowest: The lowest reward.
        highest: The highest reward.
        calls: Calls in an episode, on average.
    """

    name: str
    kind: Kind
    episodes: int
    lost: int
    reward: Estimate
    lowest: float | None
    highest: float | None
    calls: float

    @classmethod
    def of(cls, played: Sequence[Played]) -> PlayerFigures:
        """The figures of one player's episodes."""
        counted = [(one.reward, one.start.name) for one in played if one.reward is not None]
        rewards = [reward for reward, _ in counted]
        estimate = mean_of([[reward] for reward in rewards], [name for _, name in counted])
        return cls(
            played[0].player.name,
            played[0].player.kind,
            len(rewards),
            len(played) - len(rewards),
            estimate,
            min(rewards, default=None),
            max(rewards, default=None),
            fmean(len(one.calls) for one in played),
        )


@dataclass(frozen=True)
class Floor:
    """What a player without skill earns.

    Attributes:
        value: The reward.
        declared: Whether the environment says so; else it was measured.
    """

    value: float
    declared: bool

    def __str__(self) -> str:
        return f"{self.value:g} ({'declared' if self.declared else 'measured: nobody and random play'})"


def floor_of(definition: EnvironmentDefinition, figures: Sequence[PlayerFigures]) -> Floor:
    """The floor: as the environment declares it, or the more of what nobody and random play earn."""
    declared = definition.prototype.reward_floor
    if declared is not None:
        return Floor(declared, True)
    tops = [_high(one) for one in figures if one.kind in ("idle", "random") and one.episodes]
    return Floor(max(tops, default=0.0), False)


def oracle(played: Sequence[Played], solutions: Mapping[str, Solution]) -> AuditFinding:
    """Check what the reference solutions earn."""
    if not played:
        return AuditFinding("oracle_max", "skip", "the environment has no reference solutions")
    wrong = [
        f"{one.start.name} earns {_shown(one.reward)}, not {solutions[one.start.name].reward:g}"
        for one in played
        if one.reward is None or abs(one.reward - solutions[one.start.name].reward) > _PRECISION
    ]
    if wrong:
        return AuditFinding("oracle_max", "fail", f"{len(wrong)} of {len(played)}: {_some(wrong)}")
    return AuditFinding("oracle_max", "pass", f"{len(played)} reference solutions earn what they say")


def gap(definition: EnvironmentDefinition, floor: Floor, reference: PlayerFigures | None) -> AuditFinding:
    """Check that there is something to learn."""
    top = definition.prototype.reward_ceiling
    if reference is not None and reference.reward.mean is not None:
        top = reference.reward.mean
    if top is None:
        return AuditFinding("floor_gap", "skip", "no reference solution, and no declared reward_ceiling")
    status = "pass" if top > floor.value + _PRECISION else "fail"
    return AuditFinding("floor_gap", status, f"the top is {top:g}, the floor {floor}")


def adversarial(floor: Floor, figures: Sequence[PlayerFigures]) -> AuditFinding:
    """Check that nothing but skill earns more than the floor."""
    idle = next((one for one in figures if one.kind == "idle"), None)
    width = 0.0 if idle is None or idle.reward.mean is None else _high(idle) - idle.reward.mean
    most = floor.value + (width if floor.declared else 0.0)
    above = [
        f"{one.name} earns {one.reward.mean:.3f}"
        for one in figures
        if one.kind in ("idle", "cheat") and one.reward.mean is not None and _low(one) > most + _PRECISION
    ]
    if above:
        return AuditFinding("adversarial_floor", "fail", f"more than the floor {floor}: {'; '.join(above)}")
    return AuditFinding("adversarial_floor", "pass", f"nobody and no cheat earns more than the floor {floor}")


def stalling(definition: EnvironmentDefinition, played: Sequence[Played]) -> AuditFinding:
    """Check that a policy cannot learn to stop rather than to lose."""
    idle = [one.reward for one in played if one.player.kind == "idle" and one.reward is not None]
    ends = [one.reward for one in played if one.over and one.reward is not None and one.player.kind != "reference"]
    if not idle or not ends:
        return AuditFinding("stalling", "skip", "no episode was played to its end without the reference")
    stopped, worst = fmean(idle), min(ends)
    if stopped <= worst + _PRECISION:
        return AuditFinding("stalling", "pass", f"making no call earns {stopped:g}, the worst end {worst:g}")
    if (why := definition.prototype.stalling) is not None:
        return AuditFinding(
            "stalling", "pass", f"making no call earns {stopped:g}, the worst end {worst:g}; as said: {why}"
        )
    return AuditFinding(
        "stalling",
        "fail",
        f"making no call earns {stopped:g}, more than the worst end, {worst:g}: a policy may learn to stop. Let "
        "stopping earn no more, or say in the environment's `stalling` why it may",
    )


def replay(pairs: Sequence[tuple[Played, Played]]) -> AuditFinding:
    """Check that the same calls earn and show the same."""
    different = [
        f"{first.start.name} ({first.player.name}): {what}"
        for first, second in pairs
        if first.reward is not None
        for what in [_difference(first, second)]
        if what is not None
    ]
    if different:
        return AuditFinding("replayability", "fail", f"{len(different)} of {len(pairs)} differ: {_some(different)}")
    return AuditFinding("replayability", "pass", f"{len(pairs)} episodes gave the same again")


def leakage(definition: EnvironmentDefinition) -> AuditFinding:
    """Check that no task is in two splits, by its prompt and metadata, or by its id where it has neither."""
    if len(definition.splits) < 2:
        return AuditFinding("leakage", "skip", "there are not two splits")
    where: dict[str, tuple[str, str]] = {}
    shared: list[str] = []
    for split in definition.splits:
        for index in range(min(definition.num_tasks(split), _MOST_COMPARED)):
            task = definition.task(split, index)
            wire = task.model_dump(mode="json")
            own = [wire["prompt"], wire["metadata"]]
            key = json.dumps(own if any(own) else wire["id"], sort_keys=True)
            other, name = where.setdefault(key, (split, task.id))
            if other != split:
                shared.append(f"{task.id} of {split} is {name} of {other}")
    if shared:
        return AuditFinding("leakage", "fail", f"{len(shared)} tasks are in two splits: {_some(shared)}")
    return AuditFinding("leakage", "pass", f"no task is in two splits ({len(where)} compared)")


def masking(played: Sequence[Played]) -> AuditFinding:
    """Check that a player cannot make its failure a fault."""
    lost = [
        f"{one.player.name} at {one.start.name}: {one.reason}"
        for one in played
        if one.reward is None and one.player.kind == "cheat"
    ]
    if lost:
        return AuditFinding("masking", "fail", f"{len(lost)} episodes of cheats were lost to faults: {_some(lost)}")
    return AuditFinding("masking", "pass", "no cheat made its episode one that does not count")


def _difference(first: Played, second: Played) -> str | None:
    if second.reward is None or abs((first.reward or 0.0) - second.reward) > _PRECISION:
        return f"earned {_shown(first.reward)}, then {_shown(second.reward)}"
    return "another observation" if first.seen != second.seen else None


def _high(one: PlayerFigures) -> float:
    estimate = one.reward
    return estimate.high if estimate.high is not None else estimate.mean or 0.0


def _low(one: PlayerFigures) -> float:
    estimate = one.reward
    return estimate.low if estimate.low is not None else estimate.mean or 0.0


def _shown(reward: float | None) -> str:
    return "nothing, because it was lost" if reward is None else f"{reward:g}"


def _some(items: Sequence[str]) -> str:
    more = f", and {len(items) - _MOST_NAMED} more" if len(items) > _MOST_NAMED else ""
    return "; ".join(items[:_MOST_NAMED]) + more
