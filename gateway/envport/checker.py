"""Checks that an environment follows the authoring contract, like Gymnasium's `check_env`.

Every built-in environment passes these checks, and yours should too. Call `check_environment(MyEnvironment)` in one
of your tests, or run `envport check ./my_file.py:MyEnvironment`.
"""

from __future__ import annotations

import contextlib
import io
import json
import traceback
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, cast

import anyio
import jsonschema
from mcp.shared.tool_name_validation import validate_tool_name
from mcp_types import ContentBlock
from pydantic import TypeAdapter, ValidationError
from referencing.jsonschema import EMPTY_REGISTRY

from envport.check_report import CheckReport
from envport.definition import EnvironmentDefinition
from envport.environment import Environment
from envport.errors import InvalidArguments, InvalidEnvironment, InvalidRequest, ToolError
from envport.registry import load
from envport.runtimes import StepResult, Worker, limits_kept_by, runtime_for
from envport.tools.sampling import ArgumentSampler
from envport.tools.schema import ToolSpec, tools_of
from envport.types import LegalCall, Observation, Task

__all__ = ["check_environment", "examine"]

_SLOW_INLINE_SECONDS = 0.1
_SAMPLED_TASKS = 50
# The others are drawn from the schemas, because an environment has to stand those, too.
_LEGAL_SHARE = 0.8
_FEWEST_SAMPLES = 10
_REJECTED_SHARE = 0.9
_CONTENT = TypeAdapter[Any](ContentBlock)


def check_environment(
    environment: str | type[Environment] | EnvironmentDefinition,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = 30,
) -> CheckReport:
    """Check an environment, and raise if it breaks the contract.

    Args:
        environment: A reference that the registry accepts (`catch?rows=8`, `./file.py:Class`), a class, or an
            `EnvironmentDefinition`.
        seeds: Seeds to play with. Each is played in several episodes at once.
        steps: Number of random calls in each of these episodes.

    Returns:
        The report, which may hold warnings.

    Raises:
        InvalidEnvironment: The environment broke the contract; the message lists how.
    """
    report = anyio.run(examine, environment, seeds, steps)
    if not report.ok:
        raise InvalidEnvironment(str(report))
    return report


async def examine(
    environment: str | type[Environment] | EnvironmentDefinition, seeds: Sequence[int] = (0, 1, 2), steps: int = 30
) -> CheckReport:
    """Like `check_environment`, but for a running event loop, and the report contains the errors.

    Raises:
        ConfigurationError: There is no such environment, or it cannot be served at all.
    """
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        spec = _spec(environment)
        report = CheckReport(spec.name, limits_kept_by=limits_kept_by(spec.cls.runtime))
        _check_tools(spec, report)
        tasks = list(_check_splits(spec, report)) or [None]
        if report.ok:
            await _check_close(spec, report)
            for number, seed in enumerate(seeds):
                await _Trial(spec, report, tasks[number % len(tasks)], seed, steps).run()
            _check_coverage(report)
    if printed := output.getvalue():
        report.error("stdout", f"it printed {printed[:60]!r}: standard output belongs to the stdio transport")
    return report


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
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        report.error("schema", f"{where} is not valid JSON Schema 2020-12: {error.message}")
    if schema.get("type") != "object":
        report.error("schema", f"{where} is not of type object")


def _check_default(where: str, part: Any, root: dict[str, Any], report: CheckReport) -> None:
    if isinstance(part, dict) and "default" in part:
        part = cast("dict[str, Any]", part)
        validator: Any = jsonschema.Draft202012Validator(
            {**part, "$defs": root.get("$defs", {})}, registry=EMPTY_REGISTRY
        )
        if not validator.is_valid(part["default"]):
            report.warning("default", f"{where} is {part['default']!r}, which its own schema refuses")


def _check_splits(spec: EnvironmentDefinition, report: CheckReport) -> Iterator[Task]:
    """Check a sample of the tasks of each split, and yield tasks to play."""
    for name, source in spec.splits.items():
        total = len(source)
        if not total:
            report.error("splits", f"split {name!r} is empty")
            continue
        middle = Random(0).sample(range(total), min(total, _SAMPLED_TASKS))
        indices = sorted({0, total - 1, *middle})
        try:
            tasks = [spec.task(name, index) for index in indices]
            again = [spec.task(name, index) for index in indices]
        except Exception as error:
            report.error("splits", f"split {name!r}: a task cannot be read: {_told(error)}")
            continue
        if tasks != again:
            report.error("splits", f"split {name!r}: reading an index twice gives different tasks")
        if len({task.id for task in tasks}) < len(tasks):
            report.error("splits", f"split {name!r}: two tasks have the same id")
        for task in tasks:
            try:
                json.dumps(task.model_dump(mode="json"), allow_nan=False)
            except (ValueError, TypeError) as error:
                report.error("splits", f"split {name!r}: task {task.id!r} cannot be sent as JSON: {error}")
        if spec.tools_vary:
            _check_task_tools(spec, tasks, report)
        yield from (tasks[0], tasks[-1])


def _check_task_tools(spec: EnvironmentDefinition, tasks: Sequence[Task], report: CheckReport) -> None:
    another = EnvironmentDefinition(spec.name, spec.cls, spec.options)
    checked = dict(spec.tools)
    for task in tasks:
        try:
            tools, again = spec.toolset_for(task), another.toolset_for(task)
        except (InvalidEnvironment, InvalidRequest) as error:
            report.error("tools", f"the tools of task {task.id!r} cannot be told: {error}")
            return
        if tools.listing != again.listing or tools.listing != spec.toolset_for(task).listing:
            report.error(
                "tools",
                f"task {task.id!r} has other tools when they are asked for again; they have to depend on the task and "
                "the options only",
            )
        for name, tool in tools.tools.items():
            if checked.get(name) is not tool:
                checked[name] = tool
                _check_tool(tool, report)


async def _check_close(spec: EnvironmentDefinition, report: CheckReport) -> None:
    runtime = runtime_for(spec.cls.runtime)
    worker = await runtime.open(spec)
    try:
        await worker.close()
    except Exception as error:
        report.error("close", f"close() fails where reset() has not been completed: {_told(error)}")
    finally:
        await runtime.drain()


def _check_coverage(report: CheckReport) -> None:
    """Say so if the environment was hardly played: nothing is known of it then."""
    if report.sampled >= _FEWEST_SAMPLES and report.rejected >= _REJECTED_SHARE * report.sampled:
        report.error(
            "coverage",
            f"{report.rejected} of {report.sampled} sampled calls were refused, so the environment was hardly played: "
            "say in legal_calls() which calls make sense, or narrow the schemas of the tools",
        )


class _Trial:
    """Plays one seed with two instances in turn. Between them, a third instance plays with another seed.

    The first instance also gets invalid arguments. A difference between the first two instances means that the
    environment has global state, or that invalid arguments reached it.
    """

    def __init__(self, spec: EnvironmentDefinition, report: CheckReport, task: Task | None, seed: int, steps: int):
        self._spec = spec
        self._report = report
        self._task = task
        self._seed = seed
        self._steps = steps
        self._rng = Random(seed)
        self._tools = spec.toolset_for(task).tools
        self._samplers = {name: ArgumentSampler(tool.input_schema) for name, tool in self._tools.items()}

    async def run(self) -> None:
        runtime = runtime_for(self._spec.cls.runtime)
        first, second, noise = [await runtime.open(self._spec) for _ in range(3)]
        self._report.episodes += 3
        try:
            if await self._reset(first, second, noise):
                for _ in range(self._steps):
                    if not await self._step(first, second, noise):
                        break
        finally:
            for worker in (first, second, noise):
                try:
                    await worker.close()
                except Exception as error:
                    self._report.error("close", f"close() fails after an episode: {_told(error)}")
            await runtime.drain()

    async def _reset(self, first: Worker, second: Worker, noise: Worker) -> bool:
        seen: list[Observation] = []
        for worker, seed in ((first, self._seed), (noise, self._seed + 1), (second, self._seed)):
            try:
                seen.append(await worker.reset(seed=seed, task=self._task))
            except Exception as error:
                self._report.error("reset", f"reset() fails: {_told(error)}")
                return False
        self._check_observation("reset()", seen[0])
        if seen[0] != seen[2]:
            self._differs("the first observation", seen[0], seen[2])
            return False
        return True

    async def _step(self, first: Worker, second: Worker, noise: Worker) -> bool:
        """Make one call with each instance, and return whether the episode continues."""
        legal = await self._legal_calls(first, second)
        if legal == []:
            self._report.warning("legal_calls", "legal_calls() names no call, but the episode goes on")
            return False
        if legal is not None and self._rng.random() < _LEGAL_SHARE:
            name, arguments = self._rng.choice(legal)
        else:
            legal = None
            name = self._rng.choice(list(self._tools))
            try:
                arguments = self._samplers[name].sample(self._rng)
            except ValueError as error:
                self._report.warning("sampling", f"tool {name!r} could not be tried: {error}")
                return True
        await self._call_badly(first, name, arguments)
        one = await self._call(first, name, arguments)
        await self._call(noise, name, arguments)
        two = await self._call(second, name, arguments)
        if one is None or two is None:
            return False
        if one != two:
            self._differs(f"the reply of {name}({json.dumps(arguments)})", one, two)
            return False
        self._report.sampled += 1
        if isinstance(one, str):
            self._report.rejected += 1
            if legal is not None:
                call = f"{name}({json.dumps(arguments)})"
                self._report.warning("legal_calls", f"legal_calls() names {call}, which is refused: {one}")
            return True
        self._check_observation(f"tool {name!r}", one.observation, self._tools[name])
        return not (one.terminated or one.truncated)

    async def _legal_calls(self, first: Worker, second: Worker) -> list[LegalCall] | None:
        """The calls that make sense now, as both instances say; `None` if the environment does not say."""
        if self._spec.cls.legal_calls is Environment.legal_calls:
            return None
        try:
            legal, again = await first.legal_calls(), await second.legal_calls()
        except Exception as error:
            self._report.error("legal_calls", f"legal_calls() fails: {_told(error)}")
            return []
        if legal != again:
            self._report.error("legal_calls", "legal_calls() differs between two instances of the same task and seed")
        for name, arguments in legal or ():
            if name not in self._samplers:
                self._report.error("legal_calls", f"legal_calls() names the tool {name!r}, which there is not")
                return []
            if not self._samplers[name].accepts(arguments):
                call = f"{name}({json.dumps(arguments)})"
                self._report.error("legal_calls", f"legal_calls() names {call}, which the tool's schema refuses")
                return []
        return legal

    async def _call(self, worker: Worker, name: str, arguments: dict[str, Any]) -> StepResult | str | None:
        """The result, the message of a `ToolError`, or `None` if the environment broke."""
        begin = anyio.current_time()
        try:
            return await worker.call(name, arguments, None)
        except ToolError as error:
            return str(error)
        except InvalidArguments as error:
            self._report.error("schema", f"tool {name!r} refuses what its schema accepts: {error}")
        except Exception as error:
            self._report.error("call", f"{name}({json.dumps(arguments)}) fails: {_told(error)}")
        finally:
            self._report.calls += 1
            slow = anyio.current_time() - begin > _SLOW_INLINE_SECONDS
            if slow and self._spec.cls.runtime == "inline":
                self._report.warning("runtime", f"tool {name!r} blocks the event loop: declare runtime = 'thread'")
        return None

    async def _call_badly(self, worker: Worker, name: str, good: dict[str, Any]) -> None:
        schema = self._tools[name].input_schema
        candidates: list[dict[str, Any]] = [{**good, "not-an-argument": 1}]
        for argument in schema["properties"]:
            candidates.append({**good, argument: {"not": ["a", "value"]}})
            candidates.append({key: value for key, value in good.items() if key != argument})
        bad = [arguments for arguments in candidates if not self._samplers[name].accepts(arguments)]
        if not bad:
            return
        arguments = self._rng.choice(bad)
        self._report.refused += 1
        try:
            await worker.call(name, arguments, None)
        except InvalidArguments:
            return
        except Exception as error:
            self._report.error("arguments", f"{name}({json.dumps(arguments)}) gives {_told(error)}")
            return
        self._report.error("arguments", f"{name}({json.dumps(arguments)}) is accepted, but its schema refuses it")

    def _check_observation(self, where: str, observation: Observation, tool: ToolSpec | None = None) -> None:
        try:
            json.dumps(observation.model_dump(mode="json"), allow_nan=False).encode()
            for block in observation.content:
                _CONTENT.validate_python(block)
        except (ValueError, TypeError, ValidationError) as error:
            self._report.error("observation", f"{where}: an observation that MCP cannot carry: {error}")
            return
        if tool is not None and tool.output_schema is not None:
            validator: Any = jsonschema.Draft202012Validator(tool.output_schema, registry=EMPTY_REGISTRY)
            if not validator.is_valid(observation.structured_content):
                self._report.error("observation", f"{where}: the result is not what its output schema promises")

    def _differs(self, what: str, one: Any, two: Any) -> None:
        self._report.error(
            "reproducibility",
            f"seed {self._seed}: {what} differs between two instances: {str(one)[:200]} and "
            f"{str(two)[:200]}; draw from self.rng, keep nothing in globals or on the class",
        )


def _told(error: Exception) -> str:
    frames = list(traceback.extract_tb(error.__traceback__))
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
