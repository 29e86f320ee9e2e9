"""Playing an environment at random, to find out whether it keeps the contract."""

from __future__ import annotations

import inspect
import json
import traceback
from functools import partial
from random import Random
from typing import Any

import anyio
from mcp_types import ContentBlock
from pydantic import TypeAdapter, ValidationError

from envport.checker.report import CheckReport
from envport.checker.tape import Tape, shown
from envport.checker.watch import CheckWatch, OutOfTime
from envport.definition import EnvironmentDefinition
from envport.environment import Environment
from envport.episodes import Limits
from envport.errors import InvalidArguments, ToolError, WorkerLost
from envport.runtimes import Bounds, StepResult, Worker, runtime_for
from envport.tools.dialects import validator_of
from envport.tools.sampling import ArgumentSampler
from envport.tools.schema import ToolSpec
from envport.types import LegalCall, Observation, Task

__all__ = ["Trial", "bounds_of", "failure", "told"]

_SLOW_INLINE_SECONDS = 0.1
# The others are drawn from the schemas, because an environment has to stand those, too.
_LEGAL_SHARE = 0.8
_INSTANCES = 3
_CONTENT = TypeAdapter[Any](ContentBlock)


class Trial:
    """Plays one seed with two instances in turn. Between them, a third instance plays with another seed.

    The first instance also gets invalid arguments. A difference between the first two instances means that the
    environment has global state, or that invalid arguments reached it. If the environment cannot have three episodes at
    a time, the first instance plays alone.

    Args:
        spec: The environment.
        report: Gets what is found.
        watch: Gets what is being done, and says when to stop.
        task: The task; `None` if there are none.
        seed: The seed.
        steps: Number of calls that each instance gets.

    Attributes:
        tape: The episode of the first instance.
        noise: The episode of the third instance.
        beside: Whether there are more instances than the first.
    """

    def __init__(
        self,
        spec: EnvironmentDefinition,
        report: CheckReport,
        watch: CheckWatch,
        task: Task | None,
        seed: int,
        steps: int,
    ):
        self._spec = spec
        self._report = report
        self._watch = watch
        self._task = task
        self._seed = seed
        self._steps = steps
        self.tape, self.noise = Tape(task, seed), Tape(task, seed + 1)
        most = spec.prototype.max_episodes
        self.beside = most is None or most >= _INSTANCES
        self._rng = Random(seed)
        self._tools = spec.toolset_for(task).tools
        self._samplers = {name: ArgumentSampler(tool.input_schema) for name, tool in self._tools.items()}

    async def run(self) -> None:
        """Play.

        Raises:
            OutOfTime: The time of the check is over.
        """
        runtime = runtime_for(self._spec.cls.runtime)
        bounds = bounds_of(self._spec, self._watch)
        workers: list[Worker] = []
        try:
            for _ in range(_INSTANCES if self.beside else 1):
                opening = partial(runtime.open, self._spec, bounds)
                workers.append(await self._watch.within("starting an instance", opening))
            self._report.episodes += len(workers)
            first, second, noise = workers if self.beside else (*workers, None, None)
            if await self._reset(first, second, noise):
                for _ in range(self._steps):
                    if not await self._step(first, second, noise):
                        break
                # What broke may not be scored.
                if self._report.ok:
                    await self._score(first)
        except WorkerLost as lost:
            self._report.error("start", failure("starting an instance", lost))
        finally:
            for worker in workers:
                self._watch.name("close()")
                try:
                    await worker.close()
                except Exception as error:
                    self._report.error("close", failure("close()", error, "after an episode"))
            self._watch.name("ending the instances")
            await runtime.drain()

    async def _reset(self, first: Worker, second: Worker | None, noise: Worker | None) -> bool:
        seen: list[Observation] = []
        for worker, seed in ((first, self._seed), (noise, self._seed + 1), (second, self._seed)):
            if worker is None:
                continue
            try:
                reset = partial(worker.reset, seed=seed, task=self._task, secrets=self._spec.secrets)
                seen.append(await self._watch.within("reset()", reset))
            except OutOfTime:
                raise
            except Exception as error:
                self._report.error("reset", failure("reset()", error))
                return False
        self._check_observation("reset()", seen[0])
        self.tape.opening = shown(seen[0])
        if len(seen) == 1:
            return True
        if seen[0] != seen[2]:
            self._differs("the first observation", seen[0], seen[2])
            return False
        self.noise.opening = shown(seen[1])
        return True

    async def _score(self, worker: Worker) -> None:
        if self._spec.cls.score is Environment.score:
            return
        try:
            self.tape.score = await self._watch.within("score()", worker.score)
            self.tape.scored = True
        except OutOfTime:
            raise
        except Exception as error:
            self._report.error("score", failure("score()", error))

    async def _step(self, first: Worker, second: Worker | None, noise: Worker | None) -> bool:
        """Make one call with each instance, and return whether the episode continues."""
        legal = await self._legal_calls(first, second or first)
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
        if not await self._call_badly(first, name, arguments):
            return False
        one = await self._call(first, name, arguments)
        # Where the first has broken, the others would hang or break in the same way.
        if one is None or not await self._call_beside(one, second, noise, name, arguments):
            return False
        self._report.sampled += 1
        if isinstance(one, str):
            self._report.rejected += 1
            if legal is not None:
                said = f"legal_calls() names {_call(name, arguments)}, which is refused: {one}"
                self._report.warning("legal_calls", said)
            return True
        self._check_observation(f"tool {name!r}", one.observation, self._tools[name])
        return not (one.terminated or one.truncated)

    async def _call_beside(
        self, one: StepResult | str, second: Worker | None, noise: Worker | None, name: str, arguments: dict[str, Any]
    ) -> bool:
        """Make the call of the first instance with the others, and return whether they gave what they should."""
        between = await self._call(noise, name, arguments) if noise is not None else one
        if between is None:
            return False
        self.tape.calls.append((name, arguments, shown(one)))
        self.noise.calls.append((name, arguments, shown(between)))
        two = await self._call(second, name, arguments) if second is not None else one
        if two is not None and one != two:
            self._differs(f"the reply of {_call(name, arguments)}", one, two)
        return one == two

    async def _legal_calls(self, first: Worker, second: Worker) -> list[LegalCall] | None:
        """The calls that make sense now, as both instances say; `None` if the environment does not say."""
        if self._spec.cls.legal_calls is Environment.legal_calls:
            return None
        try:
            legal, again = [await self._watch.within("legal_calls()", it.legal_calls) for it in (first, second)]
        except OutOfTime:
            raise
        except Exception as error:
            self._report.error("legal_calls", failure("legal_calls()", error))
            return []
        if legal != again:
            self._report.error("legal_calls", "legal_calls() differs between two instances of the same task and seed")
        for name, arguments in legal or ():
            if name not in self._samplers:
                self._report.error("legal_calls", f"legal_calls() names the tool {name!r}, which there is not")
                return []
            if not self._samplers[name].accepts(arguments):
                said = f"legal_calls() names {_call(name, arguments)}, which the tool's schema refuses"
                self._report.error("legal_calls", said)
                return []
        return legal

    async def _call(self, worker: Worker, name: str, arguments: dict[str, Any]) -> StepResult | str | None:
        """The result, the message of a `ToolError`, or `None` if the environment broke."""
        begin = anyio.current_time()
        call = _call(name, arguments)
        try:
            return await self._watch.within(f"the call {call}", partial(worker.call, name, arguments, None))
        except OutOfTime:
            raise
        except ToolError as error:
            return str(error)
        except InvalidArguments as error:
            self._report.error("schema", f"tool {name!r} refuses what its schema accepts: {error}")
        except Exception as error:
            self._report.error("call", failure(call, error))
        finally:
            self._report.calls += 1
            slow = anyio.current_time() - begin > _SLOW_INLINE_SECONDS
            if slow and self._spec.cls.runtime == "inline" and not self._is_async(name):
                self._report.warning("runtime", f"tool {name!r} blocks the event loop: declare runtime = 'thread'")
        return None

    def _is_async(self, name: str) -> bool:
        return inspect.iscoroutinefunction(getattr(self._spec.cls, self._tools[name].method, None))

    async def _call_badly(self, worker: Worker, name: str, good: dict[str, Any]) -> bool:
        """Make a call that has to be refused, and return whether the instance can still be used."""
        schema = self._tools[name].input_schema
        candidates: list[dict[str, Any]] = [{**good, "not-an-argument": 1}]
        for argument in schema["properties"]:
            candidates.append({**good, argument: {"not": ["a", "value"]}})
            candidates.append({key: value for key, value in good.items() if key != argument})
        bad = [arguments for arguments in candidates if not self._samplers[name].accepts(arguments)]
        if not bad:
            return True
        arguments = self._rng.choice(bad)
        call = _call(name, arguments)
        self._report.refused += 1
        try:
            await self._watch.within(f"the bad call {call}", partial(worker.call, name, arguments, None))
        except InvalidArguments:
            return True
        except OutOfTime:
            raise
        except Exception as error:
            self._report.error("arguments", f"{call} gives {told(error)}")
            return not isinstance(error, WorkerLost)
        self._report.error("arguments", f"{call} is accepted, but its schema refuses it")
        return True

    def _check_observation(self, where: str, observation: Observation, tool: ToolSpec | None = None) -> None:
        try:
            json.dumps(observation.model_dump(mode="json"), allow_nan=False).encode()
            for block in observation.content:
                _CONTENT.validate_python(block)
        except (ValueError, TypeError, ValidationError) as error:
            self._report.error("observation", f"{where}: an observation that MCP cannot carry: {error}")
            return
        promised = tool.output_schema if tool is not None else None
        if promised is not None and not validator_of(promised).is_valid(observation.structured_content):
            self._report.error("observation", f"{where}: the result is not what its output schema promises")

    def _differs(self, what: str, one: Any, two: Any) -> None:
        self._report.error(
            "reproducibility",
            f"seed {self._seed}: {what} differs between two instances: {str(one)[:200]} and "
            f"{str(two)[:200]}; draw from self.rng, keep nothing in globals or on the class"
            f"{', or do not declare deterministic = True' if self._spec.deterministic else ''}",
        )


def bounds_of(spec: EnvironmentDefinition, watch: CheckWatch) -> Bounds:
    """The limits that the environment declares. No single step may take most of the check's time."""
    bounds = Limits().bounds(spec)
    if (most := watch.step_seconds) is None:
        return bounds
    return bounds._replace(
        call_seconds=_least(bounds.call_seconds, most),
        reset_seconds=_least(bounds.reset_seconds, most),
        score_seconds=_least(bounds.score_seconds, most),
        close_seconds=_least(bounds.close_seconds, most),
    )


def _least(declared: float | None, most: float) -> float:
    return most if declared is None else min(declared, most)


def failure(what: str, error: Exception, when: str = "") -> str:
    """Why a method of the environment did not do its work."""
    when = f" {when}" if when else ""
    if isinstance(error, WorkerLost) and error.reason == "deadline":
        return f"{what} hangs{when}: {error} If it needs longer, raise that limit, or give the check more time"
    return f"{what} fails{when}: {told(error)}"


def told(error: Exception) -> str:
    """An error, and where it was raised."""
    frames = list(traceback.extract_tb(error.__traceback__))
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def _call(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({json.dumps(arguments)})"
