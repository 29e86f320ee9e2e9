"""Copying an episode half-way: the copy and the original have to go on as the episode did."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from envport.checker.replays import differs
from envport.checker.report import CheckReport
from envport.checker.tape import Tape, shown
from envport.checker.trial import bounds_of, failure, told
from envport.checker.watch import CheckWatch, OutOfTime
from envport.definition import EnvironmentDefinition
from envport.errors import ConfigurationError, ToolError, WorkerLost
from envport.runtimes import Runtime, Worker, in_another_process, runtime_for

__all__ = ["check_snapshots"]

_CHECK = "snapshot"
_MOST_EPISODES = 3


async def check_snapshots(
    spec: EnvironmentDefinition,
    report: CheckReport,
    watch: CheckWatch,
    tapes: Sequence[Tape],
    *,
    another_process: bool,
) -> None:
    """Check that `snapshot` changes nothing, and that an episode goes on from it in a new instance.

    Args:
        spec: The environment.
        report: Gets what is found.
        watch: Gets what is being done, and says when to stop.
        tapes: Episodes that were played.
        another_process: Whether the new instance is in another process, if there can be one.

    Raises:
        OutOfTime: The time of the check is over.
    """
    watch.stage = "copying episodes"
    here = runtime_for(spec.cls.runtime)
    there = await _elsewhere(spec, watch) if another_process else None
    try:
        for tape in tapes[:_MOST_EPISODES]:
            difference = await _Copying(spec, watch, here, there or here).difference(tape)
            if difference is not None:
                report.error(_CHECK, f"seed {tape.seed}: {difference}")
                break
    finally:
        watch.name("ending the instances")
        for runtime in (here, there):
            if runtime is not None:
                await runtime.drain()


async def _elsewhere(spec: EnvironmentDefinition, watch: CheckWatch) -> Runtime | None:
    runtime = in_another_process()
    try:
        await watch.within("starting another process", partial(runtime.prepare, spec))
    except ConfigurationError:
        await runtime.drain()
        return None
    return runtime


@dataclass(frozen=True)
class _Copying:
    spec: EnvironmentDefinition
    watch: CheckWatch
    here: Runtime
    there: Runtime

    async def difference(self, tape: Tape) -> str | None:
        """What is wrong, in words."""
        half = len(tape.calls) // 2
        try:
            original = await self._instance(self.here, tape)
            try:
                for name, arguments, _ in tape.calls[:half]:
                    await self._call(original, name, arguments)
                data = await self.watch.within("snapshot()", original.snapshot)
                copy = await self._instance(self.there, tape)
                try:
                    await self.watch.within("restore()", partial(copy.restore, data))
                    return await self._goes_on(original, tape, half, "after snapshot()") or await self._goes_on(
                        copy, tape, half, f"in a new instance, after restore() at call {half}"
                    )
                finally:
                    await copy.close()
            finally:
                await original.close()
        except (OutOfTime, ConfigurationError):
            raise
        except WorkerLost as lost:
            return failure("copying the episode", lost)
        except Exception as error:
            return f"copying the episode fails: {told(error)}"

    async def _instance(self, runtime: Runtime, tape: Tape) -> Worker:
        opening = partial(runtime.open, self.spec, bounds_of(self.spec, self.watch))
        worker = await self.watch.within("starting an instance", opening)
        try:
            reset = partial(worker.reset, seed=tape.seed, task=tape.task, secrets=self.spec.secrets)
            await self.watch.within("reset()", reset)
        except BaseException:
            await worker.close()
            raise
        return worker

    async def _call(self, worker: Worker, name: str, arguments: dict[str, Any]) -> Any:
        try:
            call = partial(worker.call, name, arguments, None)
            return shown(await self.watch.within(f"the call {name}({json.dumps(arguments)})", call))
        except ToolError as error:
            return shown(str(error))

    async def _goes_on(self, worker: Worker, tape: Tape, half: int, where: str) -> str | None:
        for name, arguments, before in tape.calls[half:]:
            if (now := await self._call(worker, name, arguments)) != before:
                return differs(f"{where}, the reply of {name}({json.dumps(arguments)})", before, now)
        if tape.scored and (score := await self.watch.within("score()", worker.score)) != tape.score:
            return differs(f"{where}, the score", tape.score, score)
        return None
