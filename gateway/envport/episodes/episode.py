"""One play of one environment, from reset to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import anyio

from envport.clock import Clock
from envport.episodes.faults import Fault
from envport.episodes.play import CallResult, EpisodeRequest, LastAnswer, Tally
from envport.episodes.states import GONE, LIVE, NEXT
from envport.errors import (
    EnvportError,
    EpisodeFailed,
    EpisodeOver,
    InvalidArguments,
    InvalidRequest,
    ToolError,
    UnknownEpisode,
    UnknownTool,
    WorkerLost,
)
from envport.registry import EnvironmentDefinition
from envport.runtimes import UNBOUNDED, Bounds, ProgressSink, Runtime, StepResult, Worker
from envport.telemetry.subject import EpisodeSubject, episode_at_hand
from envport.telemetry.tracing import annotate, begin_span
from envport.tools.content import text_observation
from envport.trajectories import TrajectoryStore
from envport.types import EpisodeInfo, Observation, Outcome, Reason, Status, StepRecord

__all__ = ["Episode"]

logger = logging.getLogger(__name__)

# A client that gets the last answer usually opens its next episode at once. After this short wait, the place of the
# ended episode is usually free again.
_CLOSE_GRACE = 0.02


class Episode:
    """An episode and everything that belongs to it.

    Args:
        handle: The id that clients use.
        spec: The environment.
        request: The task, seed and options of the episode.
        principal: Name of the principal that owns it.
        runtime: The runtime that runs the environment.
        trajectories: Where its calls are recorded.
        clock: The clock.
        on_retired: Called each time the episode has ended and freed its environment.
        bounds: Time and memory limits of its environment.
        max_seconds: The episode is truncated this many seconds after its reset; `None` for no limit.
        on_ended: Called each time the episode gets an outcome.
        on_lost: Called when the worker was lost between two calls. The callback has to have `lose` awaited.
        on_over: Called when a call has ended the episode. It starts a task that awaits `release`.
    """

    def __init__(
        self,
        handle: str,
        spec: EnvironmentDefinition,
        request: EpisodeRequest,
        *,
        principal: str,
        runtime: Runtime,
        trajectories: TrajectoryStore,
        clock: Clock,
        on_retired: Callable[[Episode], None],
        bounds: Bounds = UNBOUNDED,
        max_seconds: float | None = None,
        on_ended: Callable[[Episode, Outcome], None] | None = None,
        on_lost: Callable[[Episode, WorkerLost], None] | None = None,
        on_over: Callable[[Episode], asyncio.Task[None]] | None = None,
    ):
        self.handle = handle
        self.spec = spec
        self.request = request
        self.principal = principal
        self.subject = EpisodeSubject(spec.name, handle, principal)
        self.status: Status = "opening"
        self.outcome: Outcome | None = None
        self.first_observation = Observation()
        self.last_used = clock.monotonic()
        self.ended_at: float | None = None
        self._runtime = runtime
        self._trajectories = trajectories
        self._clock = clock
        self._on_retired = on_retired
        self._bounds = bounds
        self._max_seconds = max_seconds
        self._on_ended = on_ended
        self._on_lost = on_lost
        self._on_over = on_over
        self._started_at = clock.monotonic()
        self._created_at = clock.time()
        self._worker: Worker | None = None
        self._lost: WorkerLost | None = None
        self._turn = anyio.Lock(fast_acquire=True)
        self._tally = Tally()
        self._last = LastAnswer()
        self._resets = 0
        self._callers = 0

    @property
    def live(self) -> bool:
        """Whether it can still be played."""
        return self.status in LIVE

    @property
    def busy(self) -> bool:
        """Whether a call is running or waiting for its turn."""
        return self._callers > 0

    @property
    def prompt(self) -> str:
        """The instructions for the player: the task's prompt, or else the environment's description."""
        task = self.request.task
        return task.prompt if task is not None and task.prompt else self.spec.description

    async def open(self) -> None:
        """Make the environment and reset it.

        Raises:
            InvalidRequest: The environment refused the task or seed; the episode has ended as failed.
            EpisodeFailed: The environment broke; the episode has ended as failed.
        """
        token = episode_at_hand.set(self.subject)
        try:
            async with self._turn:
                await self._start()
        finally:
            episode_at_hand.reset(token)

    async def reset(self, request: EpisodeRequest, admit: Callable[[Episode], Awaitable[None]]) -> None:
        """Start over with a new instance of the environment.

        Args:
            request: The new task, seed and options.
            admit: Takes a place for the episode if it has none. Called when no running call can end the episode.

        Raises:
            UnknownEpisode: It was closed or has expired.
            InvalidRequest: The environment refused the task or seed; the episode has ended as failed.
            EpisodeFailed: The environment broke; the episode has ended as failed.
        """
        self._callers += 1
        try:
            async with self._turn:
                if self.status in GONE:
                    raise UnknownEpisode
                await admit(self)
                # After half a reset, the episode could be neither played nor reaped.
                with anyio.CancelScope(shield=True):
                    await self._start_over(request)
        finally:
            self._callers -= 1
            self.last_used = self._clock.monotonic()

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        progress: ProgressSink | None = None,
        call_id: str | None = None,
    ) -> CallResult:
        """Call a tool. Calls of one episode run one after the other.

        Args:
            tool: Name of the tool.
            arguments: The arguments as parsed JSON.
            progress: Where the tool's progress goes.
            call_id: Id of the call. The latest call is played once, however often it is sent.

        Raises:
            UnknownTool: There is no such tool.
            UnknownEpisode: It was closed or has expired.
            EpisodeOver: It has ended.
            InvalidArguments: The arguments break the schema; the environment was not touched.
            EpisodeFailed: The environment broke; the episode has ended as failed.
        """
        if tool not in self.spec.tools:
            raise UnknownTool(f"Unknown tool: {tool}")
        self._callers += 1
        try:
            async with self._turn:
                if call_id is not None and self._last.is_of(call_id):
                    return self._last.given()
                self._check_running()
                # A call that has begun is finished and recorded, even if its caller disconnects.
                result: CallResult | None = None
                with anyio.CancelScope(shield=True):
                    play = self._play(tool, arguments, progress)
                    result = await (play if call_id is None else self._last.keep(call_id, play))
                assert result is not None
                return result
        finally:
            self._callers -= 1
            self.touch()
            if self._worker is not None and not self.live:
                await self._let_close()

    def touch(self) -> None:
        """Restart the idle timer."""
        self.last_used = self._clock.monotonic()

    def end(self, status: Status, reason: Reason, message: str, *, infrastructure: bool = False) -> None:
        """Give the episode an outcome, unless it has one already. `release` frees what the episode holds."""
        if self.outcome is None:
            self.outcome = Outcome(status=status, reason=reason, message=message, infrastructure=infrastructure)
            self.ended_at = self._clock.time()
            if self._on_ended is not None:
                self._on_ended(self, self.outcome)
        if status in NEXT[self.status]:
            self._become(status)

    def check_time(self) -> bool:
        """Truncate the episode if its time is over, and return whether it was. A running call continues."""
        limit = self._max_seconds
        if limit is None or self.status != "running" or self._clock.monotonic() - self._started_at < limit:
            return False
        self.end("truncated", "time_limit", f"It was truncated at its limit of {limit:g} s.")
        return True

    async def lose(self, lost: WorkerLost) -> None:
        """End the episode as failed, because its worker was lost between two calls."""
        async with self._turn:
            # A call in the meantime may have noticed the loss already, and a reset has made a new worker.
            if self.status == "running" and self._lost is lost:
                self._end_broken(lost, "between two calls")
                await self._retire()

    async def release(self) -> None:
        """Free the environment, after the running call, if there is one."""
        async with self._turn:
            if not self.live:
                await self._retire()

    def info(self, idle_seconds: float | None = None) -> EpisodeInfo:
        """The state of the episode, for the control plane."""
        tally, task = self._tally, self.request
        expires_in = None
        if idle_seconds is not None and self.status not in GONE:
            expires_in = max(0.0, idle_seconds - (self._clock.monotonic() - self.last_used))
        return EpisodeInfo(
            episode_id=self.handle,
            environment=self.spec.name,
            split=task.split,
            task=task.task,
            task_index=task.task_index,
            seed=task.seed,
            status=self.status,
            outcome=self.outcome,
            steps=tally.steps,
            errors=tally.errors,
            reward=self.reward,
            rewards=list(tally.rewards),
            created_at=self._created_at,
            ended_at=self.ended_at,
            expires_in=expires_in,
            environment_seconds=tally.environment_seconds,
            resets=self._resets,
        )

    @property
    def reward(self) -> float | None:
        """The episode's reward so far; `None` if there is none, and after an infrastructure failure."""
        if self.outcome is not None and self.outcome.infrastructure:
            return None
        return self._tally.reward(self.spec.cls.reward)

    def _become(self, status: Status) -> None:
        if status not in NEXT[self.status]:
            raise RuntimeError(f"episode {self.handle}: {self.status} cannot become {status}")
        self.status = status

    def _check_running(self) -> None:
        if self.status in GONE:
            raise UnknownEpisode
        if self.status != "running":
            how = self.outcome.message if self.outcome is not None else "It has not started."
            raise EpisodeOver(
                f"The episode is over and takes no more calls. {how} To play on, start a new one: call start_episode "
                "where the tool list has it, or ask whoever gave you this address to open another episode."
            )

    async def _start_over(self, request: EpisodeRequest) -> None:
        await self._release_worker()
        # The owner may have closed the episode while its environment was being closed.
        if self.status in GONE:
            raise UnknownEpisode
        self._become("opening")
        self.request = request
        self.outcome = None
        self.ended_at = None
        self._tally = Tally()
        self._last = LastAnswer()
        self._resets += 1
        await self._start()

    async def _start(self) -> None:
        self._lost = None
        task = self.request.task
        annotate({"envport.task.split": self.request.split, "envport.task.id": task.id if task is not None else None})
        try:
            self._worker = await self._runtime.open(self.spec, self._bounds, self._lost_between_calls)
            self.first_observation = await self._worker.reset(seed=self.request.seed, task=self.request.task)
        except ToolError as refused:
            # As an observation, so that the text has no characters that JSON cannot carry.
            why = text_observation(str(refused)).text
            self.end("failed", "refused", f"The environment refused to begin: {why}", infrastructure=True)
            await self._retire()
            raise InvalidRequest(why) from None
        except (Exception, SystemExit) as error:
            await self._fail(error, "while it was being reset")
        if self.status == "opening":
            self._become("running")
        self._started_at = self._clock.monotonic()
        await self._trajectories.begin(self.handle, self.first_observation)
        self.last_used = self._clock.monotonic()

    async def _play(self, tool: str, arguments: Mapping[str, Any], progress: ProgressSink | None) -> CallResult:
        assert self._worker is not None
        tally, started_at, begin = self._tally, self._clock.time(), self._clock.monotonic()
        error: EnvportError | None = None
        try:
            result = await self._worker.call(tool, arguments, progress)
        except InvalidArguments as refused:
            tally.errors += 1
            await self._record(
                tool, arguments, StepResult(text_observation(str(refused))), refused.code, started_at, 0.0
            )
            raise
        except ToolError as refused:
            tally.errors += 1
            error, result = refused, StepResult(text_observation(str(refused)))
        except (Exception, SystemExit) as broken:
            seconds = self._clock.monotonic() - begin
            try:
                await self._record(tool, arguments, StepResult(Observation()), EpisodeFailed.code, started_at, seconds)
            finally:
                await self._fail(broken, f"in tool {tool!r}")
        seconds = self._clock.monotonic() - begin
        result = self._count(result, seconds)
        await self._record(tool, arguments, result, error.code if error else None, started_at, seconds)
        return CallResult(
            observation=result.observation,
            step=tally.steps,
            is_error=error is not None,
            reward=result.reward,
            terminated=result.terminated,
            truncated=result.truncated,
            outcome=self.outcome,
            reward_in_meta=self.request.reward_in_meta,
        )

    def _count(self, result: StepResult, seconds: float) -> StepResult:
        tally = self._tally
        tally.add(result.reward, seconds)
        limit = self.spec.prototype.max_steps
        steps = f"{tally.steps} step{'s' if tally.steps != 1 else ''}"
        if result.terminated:
            self.end("terminated", "terminated", f"It terminated after {steps}.")
        elif result.truncated:
            self.end("truncated", "truncated", f"It was truncated after {steps}.")
        elif limit is not None and tally.steps >= limit:
            self.end("truncated", "step_limit", f"It was truncated at its limit of {steps}.")
            return replace(result, truncated=True)
        elif self.status == "truncated":
            # The time limit was reached while the call was running.
            return replace(result, truncated=True)
        return result

    async def _record(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        result: StepResult,
        error: str | None,
        started_at: float,
        seconds: float,
    ) -> None:
        self._tally.records += 1
        record = StepRecord(
            index=self._tally.records,
            tool=tool,
            arguments=dict(arguments),
            observation=result.observation,
            error=error,
            reward=result.reward,
            terminated=result.terminated,
            truncated=result.truncated,
            info=result.info,
            started_at=started_at,
            seconds=seconds,
        )
        await self._trajectories.append(self.handle, record)

    def _lost_between_calls(self, lost: WorkerLost) -> None:
        self._lost = lost
        if self._on_lost is not None:
            self._on_lost(self, lost)

    def _end_broken(self, error: Exception | SystemExit, where: str) -> Fault:
        fault = Fault.of(error)
        fault.log(self.subject, where)
        self.end("failed", fault.reason, fault.message, infrastructure=True)
        return fault

    async def _fail(self, error: Exception | SystemExit, where: str) -> NoReturn:
        fault = self._end_broken(error, where)
        await self._retire()
        raise fault.raised() from None

    async def _let_close(self) -> None:
        """Start closing the environment, and wait only briefly for it, so that the answer is not delayed."""
        if self._on_over is not None:
            await asyncio.wait([self._on_over(self)], timeout=_CLOSE_GRACE)

    async def _retire(self) -> None:
        await self._release_worker()
        self._on_retired(self)

    async def _release_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        span, broke = begin_span("episode.close", self.spec.name, self.handle), None
        try:
            await worker.close()
        except (Exception, SystemExit) as error:
            broke = type(error).__qualname__
            logger.exception(
                "episode %s: environment %s broke while it was being closed",
                self.handle,
                self.spec.name,
                extra=self.subject.fields(),
            )
        finally:
            if span is not None:
                span.set({"envport.outcome": self.outcome.reason if self.outcome is not None else None})
                span.end(broke)
