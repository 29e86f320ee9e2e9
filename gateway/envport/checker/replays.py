"""Playing the same episodes again: alone, and in another process. Nothing may differ, and nothing may be left."""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from envport.checker.holdings import Holdings, temporary_folder
from envport.checker.report import CheckReport
from envport.checker.tape import Tape, shown
from envport.checker.trial import bounds_of, failure, told
from envport.checker.watch import CheckWatch, OutOfTime
from envport.definition import EnvironmentDefinition
from envport.errors import ConfigurationError, ToolError, WorkerLost
from envport.runtimes import Runtime, Worker, in_another_process, runtime_for

__all__ = ["check_alone", "check_another_process", "differs"]

_MOST_EPISODES = 3
_SHOWN = 200


@dataclass(frozen=True)
class _Way:
    """A way of playing an episode again.

    Attributes:
        check: The name of the check.
        where: Where it is played.
        cure: What an author does about a difference.
    """

    check: str
    where: str
    cure: str


_ALONE = _Way("isolation", "alone", "episodes touch each other: keep nothing in globals or on the class")
_ELSEWHERE = _Way(
    "reproducibility",
    "in another process",
    "let nothing depend on the order of a set, hash(), the clock or what ran before: sort sets, and draw from self.rng",
)


async def check_alone(
    spec: EnvironmentDefinition, report: CheckReport, watch: CheckWatch, tapes: Sequence[Tape]
) -> None:
    """Check that episodes that were played side by side give the same alone, and that they leave nothing behind.

    Args:
        spec: The environment.
        report: Gets what is found.
        watch: Gets what is being done, and says when to stop.
        tapes: Episodes that were played while others were.

    Raises:
        OutOfTime: The time of the check is over.
    """
    tapes = tapes[:_MOST_EPISODES]
    watch.stage = "playing episodes alone"
    with temporary_folder() as folder:
        gc.collect()
        before = Holdings.now(folder)
        await _play(_Replay(spec, report, watch, runtime_for(spec.cls.runtime), _ALONE), tapes)
        if tapes and report.ok:
            for what in await before.left(folder, len(tapes)):
                report.error("release", f"{what} are left of {len(tapes)} closed episodes: release them in close()")
    report.alone = len(tapes)


async def check_another_process(
    spec: EnvironmentDefinition, report: CheckReport, watch: CheckWatch, tapes: Sequence[Tape]
) -> None:
    """Check that episodes give the same in another process, in which text has other hashes.

    Args:
        spec: The environment.
        report: Gets what is found, or why it could not be done.
        watch: As for `check_alone`.
        tapes: Episodes that were played in this process.

    Raises:
        OutOfTime: The time of the check is over.
    """
    tapes = tapes[:_MOST_EPISODES]
    watch.stage = "playing in another process"
    try:
        await _play(_Replay(spec, report, watch, in_another_process(), _ELSEWHERE), tapes)
    except ConfigurationError as error:
        report.not_elsewhere = str(error)
    else:
        report.elsewhere = len(tapes)


async def _play(replay: _Replay, tapes: Sequence[Tape]) -> None:
    try:
        for tape in tapes:
            if not await replay.play(tape):
                break
    finally:
        replay.watch.name("ending the instances")
        await replay.runtime.drain()


@dataclass(frozen=True)
class _Replay:
    spec: EnvironmentDefinition
    report: CheckReport
    watch: CheckWatch
    runtime: Runtime
    way: _Way

    async def play(self, tape: Tape) -> bool:
        """Play an episode, and return whether it gave the same."""
        opening = partial(self.runtime.open, self.spec, bounds_of(self.spec, self.watch))
        worker: Worker | None = None
        try:
            worker = await self.watch.within("starting an instance", opening)
            difference = await self._difference(worker, tape)
        except (OutOfTime, ConfigurationError):
            raise
        except WorkerLost as lost:
            difference = failure("the episode", lost)
        except Exception as error:
            difference = f"the episode fails: {told(error)}"
        finally:
            if worker is not None:
                self.watch.name("close()")
                try:
                    await worker.close()
                except Exception as error:
                    self.report.error("close", failure("close()", error, f"after an episode {self.way.where}"))
        if difference is not None:
            cure = self.way.cure
            if self.spec.deterministic:
                cure += ". Or do not declare deterministic = True, if it cannot be"
            self.report.error(self.way.check, f"seed {tape.seed}, played {self.way.where}: {difference}; {cure}")
        return difference is None

    async def _difference(self, worker: Worker, tape: Tape) -> str | None:
        """The first difference, in words."""
        reset = partial(worker.reset, seed=tape.seed, task=tape.task, secrets=self.spec.secrets)
        opening = shown(await self.watch.within("reset()", reset))
        if opening != tape.opening:
            return differs("the first observation", tape.opening, opening)
        for name, arguments, before in tape.calls:
            call = f"{name}({json.dumps(arguments)})"
            try:
                now = shown(await self.watch.within(f"the call {call}", partial(worker.call, name, arguments, None)))
            except ToolError as error:
                now = shown(str(error))
            if now != before:
                return differs(f"the reply of {call}", before, now)
        if tape.scored and (score := await self.watch.within("score()", worker.score)) != tape.score:
            return differs("the score", tape.score, score)
        return None


def differs(what: str, before: Any, now: Any) -> str:
    """A difference in words.

    Args:
        what: What differs.
        before: What it was, as JSON.
        now: What it is.
    """
    return f"{what} was {_short(before)} and is {_short(now)}"


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:_SHOWN]
