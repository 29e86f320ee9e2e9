"""The checks of an environment, one after another, until they are done or the time is over."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, cast

import anyio
import jsonschema
from mcp.shared.tool_name_validation import validate_tool_name

from envport.checker.replays import check_alone, check_another_process
from envport.checker.report import CheckReport
from envport.checker.snapshots import check_snapshots
from envport.checker.solved import check_solutions
from envport.checker.trial import Trial, bounds_of, failure, told
from envport.checker.watch import CHECK_SECONDS, CheckWatch, OutOfTime
from envport.definition import EnvironmentDefinition
from envport.environment import Environment
from envport.errors import InvalidEnvironment, InvalidRequest, WorkerLost
from envport.registry import load
from envport.runtimes import limits_kept_by, runtime_for
from envport.tools.dialects import check_schema, validator_of
from envport.tools.schema import ToolSpec, tools_of
from envport.types import Task

__all__ = ["check_environment", "examine"]

logger = logging.getLogger(__name__)

_SAMPLED_TASKS = 50
# Reading tasks may be slow. Most of the time is for playing.
_READING_SHARE = 1 / 3
_FEWEST_SAMPLES = 10
_REJECTED_SHARE = 0.9


def check_environment(
    environment: str | type[Environment] | EnvironmentDefinition,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = 30,
    seconds: float | None = CHECK_SECONDS,
    another_process: bool = True,
) -> CheckReport:
    """Check an environment, and raise if it breaks the contract.

    Args:
        environment: A reference that the registry accepts (`catch?rows=8`, `./file.py:Class`), a class, or an
            `EnvironmentDefinition`.
        seeds: Seeds to play with. Each is played in several episodes at once.
        steps: Number of random calls in each of these episodes.
        seconds: How long the check may take; `None` for no limit. Then it stops, and the report says what was not
            checked. A call that blocks the event loop cannot be stopped: the log says which it is.
        another_process: Whether episodes are also played again in a process of their own, with other hashes of text. It
            takes about a second. The report says if it cannot be done, as for a class within a function.

    Returns:
        The report, which may hold warnings.

    Raises:
        InvalidEnvironment: The environment broke the contract, or nothing of it could be played in this time; the
            message lists how.
    """

    def stuck(late: OutOfTime) -> None:
        logger.warning(
            "the check of %s is over its limit of %g s, but %s blocks it for %.0f s and cannot be stopped",
            environment,
            late.limit,
            late.step,
            late.running,
        )

    with CheckWatch(seconds, stuck=stuck) as watch:
        report = anyio.run(partial(examine, another_process=another_process), environment, seeds, steps, watch)
    if not report.ok:
        raise InvalidEnvironment(str(report))
    return report


async def examine(
    environment: str | type[Environment] | EnvironmentDefinition,
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = 30,
    watch: CheckWatch | None = None,
    *,
    another_process: bool = True,
) -> CheckReport:
    """Like `check_environment`, but for a running event loop, and the report contains the errors.

    Args:
        environment: As for `check_environment`.
        seeds: As for `check_environment`.
        steps: As for `check_environment`.
        watch: Gets what is being done, and says when to stop; without a limit of time if not given.
        another_process: As for `check_environment`.

    Raises:
        ConfigurationError: There is no such environment, or it cannot be served at all.
    """
    return await _Examination(watch or CheckWatch(None), seeds, steps, another_process).of(environment)


class _Examination:
    def __init__(self, watch: CheckWatch, seeds: Sequence[int], steps: int, another_process: bool):
        self._watch = watch
        self._seeds = seeds
        self._steps = steps
        self._another_process = another_process
        self._tasks: list[Task] = []

    async def of(self, environment: str | type[Environment] | EnvironmentDefinition) -> CheckReport:
        self._watch.in_loop()
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            self._watch.name("loading the environment")
            spec = _spec(environment)
            report = self._watch.report = CheckReport(spec.name, list(self._seeds))
            try:
                await self._check(spec, report)
            except OutOfTime as late:
                report.stop(late.limit, late.step, late.running)
            _check_coverage(report)
        if printed := output.getvalue():
            report.error("stdout", f"it printed {printed[:60]!r}: standard output belongs to the stdio transport")
        return report

    async def _check(self, spec: EnvironmentDefinition, report: CheckReport) -> None:
        self._watch.begin("looking at the limits that this machine keeps")
        report.limits_kept_by = limits_kept_by(spec.cls.runtime)
        self._watch.begin("reading the tools")
        _check_tools(spec, report)
        tasks = self._check_splits(spec, report) or [None]
        if not report.ok:
            return
        await self._check_close(spec, report)
        trials: list[Trial] = []
        for number, seed in enumerate(self._seeds):
            self._watch.stage = f"playing seed {seed} ({number + 1} of {len(self._seeds)})"
            trial = Trial(spec, report, self._watch, tasks[number % len(tasks)], seed, self._steps)
            await trial.run()
            report.unplayed.remove(seed)
            trials.append(trial)
        if report.ok:
            report.beside = all(trial.beside for trial in trials)
            tapes = [trial.noise if trial.beside else trial.tape for trial in trials]
            await check_alone(spec, report, self._watch, tapes)
        if report.ok and self._another_process:
            await check_another_process(spec, report, self._watch, [trial.tape for trial in trials])
        if report.ok and spec.has_snapshots:
            tapes = [trial.tape for trial in trials]
            await check_snapshots(spec, report, self._watch, tapes, another_process=self._another_process)
        if report.ok:
            await check_solutions(spec, report, self._watch, self._tasks or [None])

    def _check_splits(self, spec: EnvironmentDefinition, report: CheckReport) -> list[Task]:
        """Check a sample of the tasks of each split, and return tasks to play."""
        self._watch.begin("reading the splits")
        to_play: list[Task] = []
        for name, source in spec.splits.items():
            if not (total := len(source)):
                report.error("splits", f"split {name!r} is empty")
                continue
            try:
                tasks = self._read(spec, name, total, report)
            except OutOfTime:
                raise
            except Exception as error:
                report.error("splits", f"split {name!r}: a task cannot be read: {told(error)}")
                continue
            if len({task.id for task in tasks}) < len(tasks):
                report.error("splits", f"split {name!r}: two tasks have the same id")
            for task in tasks:
                try:
                    json.dumps(task.model_dump(mode="json"), allow_nan=False)
                except (ValueError, TypeError) as error:
                    report.error("splits", f"split {name!r}: task {task.id!r} cannot be sent as JSON: {error}")
            if spec.tools_vary:
                self._check_task_tools(spec, tasks, report)
            self._tasks.extend(tasks)
            to_play.extend(tasks[:2] if len(tasks) > 1 else tasks * 2)
        return to_play

    def _read(self, spec: EnvironmentDefinition, split: str, total: int, report: CheckReport) -> list[Task]:
        """Read tasks, each twice: the first and the last one, and others as long as there is time."""
        middle = Random(0).sample(range(total), min(total, _SAMPLED_TASKS))
        indices = [*dict.fromkeys((0, total - 1, *sorted(middle)))]
        tasks: list[Task] = []
        differs = False
        until = None if self._watch.seconds is None else self._watch.seconds * _READING_SHARE
        for number, index in enumerate(indices, 1):
            if until is not None and self._watch.elapsed > until and len(tasks) > 1:
                report.warning(
                    "coverage",
                    f"split {split!r}: only {len(tasks)} of {len(indices)} tasks were checked, as reading them is slow",
                )
                break
            self._watch.begin(f"reading split {split!r}, task {number} of {len(indices)}")
            tasks.append(spec.task(split, index))
            differs = differs or spec.task(split, index) != tasks[-1]
        if differs:
            report.error("splits", f"split {split!r}: reading an index twice gives different tasks")
        return tasks

    def _check_task_tools(self, spec: EnvironmentDefinition, tasks: Sequence[Task], report: CheckReport) -> None:
        another = replace(spec)
        checked = dict(spec.tools)
        for task in tasks:
            self._watch.begin(f"reading the tools of task {task.id!r}")
            try:
                tools, again = spec.toolset_for(task), another.toolset_for(task)
            except (InvalidEnvironment, InvalidRequest) as error:
                report.error("tools", f"the tools of task {task.id!r} cannot be told: {error}")
                return
            if tools.listing != again.listing or tools.listing != spec.toolset_for(task).listing:
                report.error(
                    "tools",
                    f"task {task.id!r} has other tools when they are asked for again; they have to depend on the task "
                    "and the options only",
                )
            for name, tool in tools.tools.items():
                if checked.get(name) is not tool:
                    checked[name] = tool
                    _check_tool(tool, report)

    async def _check_close(self, spec: EnvironmentDefinition, report: CheckReport) -> None:
        runtime = runtime_for(spec.cls.runtime)
        self._watch.stage = "closing an instance without reset()"
        try:
            opening = partial(runtime.open, spec, bounds_of(spec, self._watch))
            worker = await self._watch.within("starting an instance", opening)
            self._watch.name("close()")
            try:
                await worker.close()
            except Exception as error:
                report.error("close", failure("close()", error, "where reset() has not been completed"))
        except WorkerLost as lost:
            report.error("start", failure("starting an instance", lost))
        finally:
            await runtime.drain()


def _spec(environment: str | type[Environment] | EnvironmentDefinition) -> EnvironmentDefinition:
    if isinstance(environment, str):
        return load(environment)
    if isinstance(environment, EnvironmentDefinition):
        return environment
    return EnvironmentDefinition(environment.__name__, environment)


def _check_tools(spec: EnvironmentDefinition, report: CheckReport) -> None:
    if not spec.description:
        readers = (
            "people see it in lists" if spec.instructions else "players see it as the prompt where there is no task"
        )
        report.warning("description", f"the class has no docstring; {readers}")
    for tool in spec.tools.values():
        _check_tool(tool, report)
    if json.loads(json.dumps(spec.listing)) != spec.listing:
        report.error("listing", "the tool listing changes when it is written as JSON and read again")
    if [tool.listing for tool in tools_of(spec.make()).values()] != spec.listing:
        report.error("listing", "another instance lists other tools; the listing has to depend on options only")


def _check_tool(tool: ToolSpec, report: CheckReport) -> None:
    verdict = validate_tool_name(tool.name)
    for warning in verdict.warnings:
        report.warning("name", f"tool {tool.name!r}: {warning}")
    if not verdict.is_valid:
        report.error("name", f"tool {tool.name!r}: MCP allows 1 to 128 of A-Z, a-z, 0-9, '_', '-' and '.' (SEP-986)")
    if not tool.description:
        report.warning("description", f"tool {tool.name!r} has no description")
    for kind, schema in (("input", tool.input_schema), ("output", tool.output_schema)):
        if schema is not None:
            _check_schema(f"tool {tool.name!r}: its {kind} schema", schema, report)
    for name, part in tool.input_schema["properties"].items():
        _check_default(f"tool {tool.name!r}: the default of {name!r}", part, tool.input_schema, report)


def _check_schema(where: str, schema: dict[str, Any], report: CheckReport) -> None:
    try:
        check_schema(schema)
    except jsonschema.SchemaError as error:
        report.error("schema", f"{where} is not valid JSON Schema 2020-12: {error.message}")
    if schema.get("type") != "object":
        report.error("schema", f"{where} is not of type object")


def _check_default(where: str, part: Any, root: dict[str, Any], report: CheckReport) -> None:
    if isinstance(part, dict) and "default" in part:
        part = cast("dict[str, Any]", part)
        validator = validator_of({**part, "$defs": root.get("$defs", {})})
        if not validator.is_valid(part["default"]):
            report.warning("default", f"{where} is {part['default']!r}, which its own schema refuses")


def _check_coverage(report: CheckReport) -> None:
    """Say so if the environment was hardly played: nothing is known of it then."""
    if report.sampled >= _FEWEST_SAMPLES and report.rejected >= _REJECTED_SHARE * report.sampled:
        report.error(
            "coverage",
            f"{report.rejected} of {report.sampled} sampled calls were refused, so the environment was hardly played: "
            "say in legal_calls() which calls make sense, or narrow the schemas of the tools",
        )
