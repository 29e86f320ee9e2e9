"""Playing the reference solutions of tasks, and doing nothing, to find out whether the rewards are right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from random import Random

from envport.checker.report import CheckReport
from envport.checker.trial import bounds_of, failure, told
from envport.checker.watch import CheckWatch, OutOfTime
from envport.definition import EnvironmentDefinition
from envport.environment import Environment
from envport.errors import ToolError, WorkerLost
from envport.runtimes import Runtime, Worker, runtime_for
from envport.types import LegalCall, Task

__all__ = ["check_solutions"]

_MOST_TASKS = 8
_PRECISION = 1e-9
_SHOWN = 80


async def check_solutions(
    spec: EnvironmentDefinition, report: CheckReport, watch: CheckWatch, tasks: Sequence[Task | None]
) -> None:
    """Check that the reference solutions of some tasks earn what the environment says, and that doing nothing does not.

    Args:
        spec: The environment.
        report: Gets what is found.
        watch: Gets what is being done, and says when to stop.
        tasks: The tasks that may be played; a sample of them is.

    Raises:
        OutOfTime: The time of the check is over.
    """
    if spec.cls.reference_solution is Environment.reference_solution:
        return
    chosen = Random(0).sample(tasks, min(len(tasks), _MOST_TASKS))
    runtime = runtime_for(spec.cls.runtime)
    try:
        for task in chosen:
            await _Solved(spec, report, watch, runtime, task).check()
    finally:
        watch.name("ending the instances")
        await runtime.drain()


class _Solved:
    """The episodes of one task: its reference solution, and doing nothing."""

    def __init__(
        self,
        spec: EnvironmentDefinition,
        report: CheckReport,
        watch: CheckWatch,
        runtime: Runtime,
        task: Task | None,
    ):
        self._spec = spec
        self._report = report
        self._watch = watch
        self._runtime = runtime
        self._task = task
        self._name = "the episode" if task is None else f"task {task.id!r}"

    async def check(self) -> None:
        """Play both, and compare what they earn with what they have to."""
        self._watch.stage = f"playing the reference solution of {self._name}"
        try:
            solution = self._spec.prototype.reference_solution(self._task)
        except Exception as error:
            self._report.error("solution", failure(f"reference_solution() of {self._name}", error))
            return
        if solution is None:
            return
        for what, calls, reward in (
            ("the reference solution", solution.calls, solution.reward),
            ("doing nothing", (), solution.idle),
        ):
            earned = await self._play(what, calls)
            if earned is not None and abs(earned - reward) > _PRECISION:
                message = f"{self._name}: {what} earns {earned:g}, and it has to earn {reward:g}"
                self._report.error("solution", message)
        self._report.solved += 1

    async def _play(self, what: str, calls: Sequence[LegalCall]) -> float | None:
        """The reward of an episode in which these calls are made; `None` if it broke, which the report then says."""
        opening = partial(self._runtime.open, self._spec, bounds_of(self._spec, self._watch))
        worker: Worker | None = None
        try:
            worker = await self._watch.within("starting an instance", opening)
            return await self._rewarded(worker, calls)
        except OutOfTime:
            raise
        except ToolError as error:
            self._report.error("solution", f"{self._name}: {what} is refused: {error}")
        except WorkerLost as error:
            self._report.error("solution", failure(f"{self._name}: {what}", error))
        except Exception as error:
            self._report.error("solution", f"{self._name}: {what} fails: {told(error)}")
        finally:
            if worker is not None:
                self._watch.name("close()")
                await worker.close()
        return None

    async def _rewarded(self, worker: Worker, calls: Sequence[LegalCall]) -> float:
        within, spec = self._watch.within, self._spec
        self._report.episodes += 1
        await within("reset()", partial(worker.reset, seed=0, task=self._task, secrets=spec.secrets))
        rewards: list[float] = []
        for name, arguments in calls:
            self._report.calls += 1
            call = partial(worker.call, name, arguments, None)
            step = await within(f"the call {name}({json.dumps(arguments)[:_SHOWN]})", call)
            rewards += [] if step.reward is None else [step.reward]
            if step.terminated or step.truncated:
                break
        if spec.cls.score is not Environment.score:
            score = await within("score()", worker.score)
            rewards += [] if score is None else [score]
        return sum(rewards) if spec.cls.reward == "sum" else [0.0, *rewards][-1]
