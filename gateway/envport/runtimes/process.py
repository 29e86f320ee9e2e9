"""Runs each episode in its own process, so that a crash ends only that episode."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import anyio.to_thread

from envport.definition import EnvironmentDefinition
from envport.environment import Environment
from envport.errors import AtCapacity, InvalidArguments, ToolError, UpstreamLost, WorkerLost
from envport.runtimes.base import NO_SECRETS, UNBOUNDED, Bounds, Load, ProgressSink, StepResult, Worker, legal_calls_of
from envport.runtimes.cgroups import ControlGroups
from envport.runtimes.descriptors import allow_descriptors
from envport.runtimes.episode_process import EpisodeProcess
from envport.runtimes.fork_server import ForkServer
from envport.runtimes.frames import FrameError
from envport.runtimes.local import SCORING, check_player_code, overdue
from envport.runtimes.meters import Allowance, GroupMeter, TreeMeter
from envport.runtimes.prepared import PreparedEnvironments
from envport.runtimes.snapshots import text_of, untold
from envport.runtimes.watchdog import Watchdog
from envport.types import LegalCall, Observation, Task

__all__ = ["EnvironmentBroke", "ProcessRuntime"]


class EnvironmentBroke(Exception):
    """An environment's own exception, with the traceback from its process. For the log only, never for a client."""


class ProcessRuntime:
    """Runs every episode in its own process, forked from one that has loaded the environment (Linux).

    Args:
        variables: Environment variables that these processes have beside those of this one.
    """

    def __init__(self, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        self._variables = variables
        self._servers: dict[int, asyncio.Task[ForkServer]] = {}
        self._watchdog = Watchdog()
        self._prepared = PreparedEnvironments()
        # Before the first process is started: with version 2, a group that has limits for its children holds none.
        self._groups = ControlGroups.find()

    async def prepare(self, spec: EnvironmentDefinition) -> None:
        """Run the environment's own `prepare`, and start the process that the episodes' processes are forked from.

        Raises:
            ConfigurationError: The environment cannot be loaded in that process, or cannot run its player's code.
        """
        await check_player_code(spec)
        await self._server(spec)

    async def open(
        self,
        spec: EnvironmentDefinition,
        bounds: Bounds = UNBOUNDED,
        on_lost: Callable[[WorkerLost], None] | None = None,
    ) -> Worker:
        """Create a process. Its environment instance is made at the reset.

        Raises:
            ConfigurationError: The environment cannot be loaded in its own process.
            WorkerLost: The process could not be made.
        """
        try:
            async with asyncio.timeout(bounds.reset_seconds):
                server = await self._server(spec)
                process = await server.fork()
        except TimeoutError:
            raise overdue("Making the environment's process", bounds.reset_seconds) from None
        process.on_lost = on_lost
        self._limit(process, bounds, server.base_memory)
        return _ProcessWorker(spec, bounds, process)

    def _limit(self, process: EpisodeProcess, bounds: Bounds, shared: int) -> None:
        allowance, pid = Allowance.of(bounds), process.pid
        if allowance is None or pid is None:
            return
        try:
            if self._groups is not None:
                process.meter = GroupMeter(self._groups, pid, allowance)
            else:
                process.meter = TreeMeter(pid, shared, allowance)
        except OSError as error:
            why = f"The limits of the environment's process could not be set: {error.strerror}."
            process.kill(WorkerLost(why, fault="infrastructure"))
            return
        self._watchdog.watch(process)

    def opens_at_once(self, spec: EnvironmentDefinition) -> bool:
        """Always false: its environments are in other processes."""
        return False

    def load(self) -> Load:
        """The current load."""
        processes = [process for server in self._running() for process in server.processes]
        return Load(len(processes), sum(process.busy for process in processes))

    async def memory(self) -> int | None:
        """Bytes of memory of the episodes' processes. Memory that they share through forking counts once."""
        processes = [(server.base_memory, server.processes) for server in self._running()]
        # This reads two files of /proc per process. With thousands of processes, that would block the event loop.
        return await anyio.to_thread.run_sync(_memory, processes)

    async def forget(self, spec: EnvironmentDefinition) -> None:
        """End the process that the environment's episodes were forked from, and what it has prepared."""
        task = self._servers.pop(id(spec), None)
        if task is not None:
            task.cancel()
            (server,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(server, ForkServer):
                await server.stop()
        await self._prepared.end(spec)

    async def drain(self) -> None:
        """Kill every process, and end what the environments have prepared."""
        tasks, self._servers = list(self._servers.values()), {}
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, ForkServer):
                await result.stop()
        await self._prepared.end()

    def _running(self) -> list[ForkServer]:
        done = [task for task in self._servers.values() if task.done() and not task.cancelled()]
        return [task.result() for task in done if task.exception() is None]

    async def _server(self, spec: EnvironmentDefinition) -> ForkServer:
        known = self._servers.get(id(spec))
        if known is None or _is_over(known):
            allow_descriptors()
            known = self._servers[id(spec)] = asyncio.create_task(self._start(spec, known))
        # Shield the start: other callers wait for the same server, and one cancelled caller must not stop it.
        return await asyncio.shield(known)

    async def _start(self, spec: EnvironmentDefinition, before: asyncio.Task[ForkServer] | None) -> ForkServer:
        if before is not None and not before.cancelled() and before.exception() is None:
            await before.result().stop()
        prepared = await self._prepared.value(spec)
        server = ForkServer(spec, self._variables)
        try:
            await server.load(prepared)
        except BaseException:
            await server.stop()
            raise
        return server


def _memory(forked: list[tuple[int, list[EpisodeProcess]]]) -> int:
    return sum(base + sum(max(0, it.memory() - base) for it in processes) for base, processes in forked)


def _is_over(task: asyncio.Task[ForkServer]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or not task.result().alive


class _ProcessWorker:
    def __init__(
        self,
        spec: EnvironmentDefinition,
        bounds: Bounds,
        process: EpisodeProcess,
    ):
        self.at_once = False
        self._spec = spec
        self._bounds = bounds
        self._process = process
        self._call_overdue = partial(overdue, "The call", bounds.call_seconds)
        self._score_overdue = partial(overdue, SCORING, bounds.score_seconds)
        self._snapshot_overdue = partial(overdue, "snapshot()", bounds.call_seconds)
        self._restore_overdue = partial(overdue, "restore()", bounds.reset_seconds)
        self._reset_overdue = partial(overdue, "Making and resetting the environment", bounds.reset_seconds)

    async def reset(self, *, seed: int, task: Task | None, secrets: Mapping[str, str] = NO_SECRETS) -> Observation:
        given = task.model_dump() if task is not None else None
        # Fail here if the task is not plain data, so that the environment never receives a changed task.
        json.dumps(given)
        message = {"op": "reset", "seed": seed, "task": given, "secrets": dict(secrets)}
        result = await self._ask(message, self._bounds.reset_seconds, self._reset_overdue)
        return result.observation

    async def call(self, tool: str, arguments: Mapping[str, Any], progress: ProgressSink | None) -> StepResult:
        message = {"op": "call", "tool": tool, "arguments": arguments, "progress": progress is not None}
        try:
            return await self._ask(message, self._bounds.call_seconds, self._call_overdue, progress)
        except RecursionError:
            raise InvalidArguments("The arguments are nested too deeply to be checked.") from None
        except FrameError as error:
            raise InvalidArguments(f"The arguments are too large: {error}.") from None

    async def legal_calls(self) -> list[LegalCall] | None:
        answer = await self._process.ask({"op": "legal"}, self._bounds.call_seconds, self._call_overdue)
        _refuse(answer)
        try:
            return legal_calls_of(answer.get("calls"))
        except TypeError as error:
            raise self._broke_protocol() from error

    async def score(self) -> float | None:
        return (await self._ask({"op": "score"}, self._bounds.score_seconds, self._score_overdue)).reward

    async def final_state(self) -> Any:
        return (await self._answer({"op": "final_state"}, self._bounds.score_seconds, self._score_overdue)).get("state")

    async def snapshot(self) -> bytes:
        answer = await self._answer({"op": "snapshot"}, self._bounds.call_seconds, self._snapshot_overdue)
        try:
            return untold(answer.get("snapshot"))
        except ValueError as error:
            raise self._broke_protocol() from error

    async def restore(self, snapshot: bytes) -> None:
        message = {"op": "restore", "snapshot": text_of(snapshot)}
        await self._answer(message, self._bounds.reset_seconds, self._restore_overdue)

    async def close(self) -> None:
        process = self._process
        process.on_lost = None
        try:
            # Skip the message if the environment does not override `close`.
            if process.lost is None and self._spec.cls.close is not Environment.close:
                seconds = self._bounds.close_seconds
                what = partial(overdue, "Closing the environment", seconds)
                _refuse(await process.ask({"op": "close"}, seconds, what))
        finally:
            process.kill()
            await process.gone()

    async def _ask(
        self,
        message: dict[str, Any],
        seconds: float | None,
        overdue: Callable[[], WorkerLost],
        progress: ProgressSink | None = None,
    ) -> StepResult:
        answer = await self._answer(message, seconds, overdue, progress)
        try:
            return _step(answer)
        except ValueError as error:
            raise self._broke_protocol() from error

    def _broke_protocol(self) -> WorkerLost:
        lost = WorkerLost("The environment's process broke the protocol.")
        self._process.kill(lost)
        return lost

    async def _answer(
        self,
        message: dict[str, Any],
        seconds: float | None,
        overdue: Callable[[], WorkerLost],
        progress: ProgressSink | None = None,
    ) -> Mapping[str, Any]:
        answer = await self._process.ask(message, seconds, overdue, progress)
        _refuse(answer)
        return answer


def _step(answer: Mapping[str, Any]) -> StepResult:
    """Read what a tool returned. Check every field, because an environment's process is not trusted."""
    reward, info = answer.get("reward"), answer.get("info", {})
    if reward is not None and not (type(reward) is float and math.isfinite(reward)):
        raise ValueError("the reward is no finite number")
    if not isinstance(info, dict):
        raise ValueError("the info is no object")
    return StepResult(
        observation=Observation(content=answer.get("content", ()), structured_content=answer.get("structured")),
        reward=reward,
        terminated=answer.get("terminated") is True,
        truncated=answer.get("truncated") is True,
        info=cast("dict[str, Any]", info),
    )


def _shown(content: Any) -> Observation:
    try:
        return Observation(content=content)
    except ValueError as error:
        raise EnvironmentBroke("the content of a ToolError is malformed") from error


def _refuse(answer: Mapping[str, Any]) -> None:
    """Raise what the environment raised."""
    if "refused" in answer:
        message = str(answer.get("message"))
        if answer["refused"] == "arguments":
            raise InvalidArguments(message)
        if answer["refused"] == "full":
            raise AtCapacity(message, float(answer["retry_after"]), limit="environment")
        raise ToolError(message, content=_shown(answer["content"]) if "content" in answer else None)
    if "broken" in answer:
        broke = EnvironmentBroke(f"in the episode's process:\n{answer['broken']}")
        if "upstream" in answer:
            raise UpstreamLost(str(answer["upstream"])) from broke
        raise broke
