"""Playing the reference solutions of tasks, and doing nothing, to find out whether the rewards are right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from envport.checker.report import CheckReport
from envport.checker.trial import bounds_of, failure, told
from envport.checker.watch import CheckWatch, OutOfTime
from envport.definition import EnvironmentDefinition
from envport.environment import Environment
from envport.errors import ToolError, WorkerLost
from envport.runtimes import Worker, runtime_for
from envport.types import LegalCall, Task

__all__ = ["check_solutions"]

_MOST_TASKS = 8
_PRECISION = 1e-9


async def check_solutions(
    spec: EnvironmentDefinition, report: CheckReport, watch: CheckWatch, tasks: Sequence[Task | None]
) -> None:
    """Check that the reference solutions of some tasks earn what the environment says, and that doing nothing does not.

    Args:
        spec: The environment.
        report: Gets what is found.
        watch: Gets what is being done, and says when to stop.
        tasks: The tasks that may be played.

    Raises:
        OutOfTime: The time of the check is over.
    """
    if spec.cls.reference_solution is Environment.reference_solution:
        return
    different = [*{task.id if task is not None else None: task for task in tasks}.values()]
    for task in different[:: -(-len(different) // _MOST_TASKS)]:
        name = "the episode" if task is None else f"task {task.id!r}"
        watch.stage = f"playing the reference solution of {name}"
        try:
            solution = spec.prototype.reference_solution(task)
        except Exception as error:
            report.error("solution", failure(f"reference_solution() of {name}", error))
            continue
        if solution is None:
            continue
        for what, calls, reward in (
            ("the reference solution", solution.calls, solution.reward),
            ("doing nothing", (), solution.idle),
        ):
            earned = await _Attempt(spec, report, watch, task).play(calls)
            if earned is not None and abs(earned - reward) > _PRECISION:
                report.error("solution", f"{name}: {what} earns {earned:g}, and it has to earn {reward:g}")
        report.solved += 1


class _Attempt:
    def __init__(self, spec: EnvironmentDefinition, report: CheckReport, watch: CheckWatch, task: Task | None):
        self._spec = spec
        self._report = report
        self._watch = watch
        self._task = task

    async def play(self, calls: Sequence[LegalCall]) -> float | None:
        """The reward of an episode in which these calls are made; `None` if it broke, which the report then says."""
        runtime = runtime_for(self._spec.cls.runtime)
        opening = partial(runtime.open, self._spec, bounds_of(self._spec, self._watch))
        worker: Worker | None = None
        try:
            worker = await self._watch.within("starting an instance", opening)
            return await self._rewarded(worker, calls)
        except OutOfTime:
            raise
        except ToolError as error:
            self._report.error("solution", f"a call of a reference solution is refused: {error}")
        except WorkerLost as error:
            self._report.error("solution", failure("an episode with a reference solution", error))
        except Exception as error:
            self._report.error("solution", f"an episode with a reference solution fails: {told(error)}")
        finally:
            if worker is not None:
                await worker.close()
            await runtime.drain()
        return None

    async def _rewarded(self, worker: Worker, calls: Sequence[LegalCall]) -> float:
        within, spec = self._watch.within, self._spec
        self._report.episodes += 1
        reset = partial(worker.reset, seed=0, task=self._task, secrets=spec.secrets)
        await within("reset()", reset)
        rewards: list[float] = []
        for name, arguments in calls:
            self._report.calls += 1
            call = partial(worker.call, name, arguments, None)
            step = await within(f"the call {name}({json.dumps(arguments)[:80]})", call)
            rewards += [] if step.reward is None else [step.reward]
            if step.terminated or step.truncated:
                break
        if spec.cls.score is not Environment.score:
            score = await within("score()", worker.score)
            rewards += [] if score is None else [score]
        return sum(rewards) if spec.cls.reward == "sum" else [0.0, *rewards][-1]
