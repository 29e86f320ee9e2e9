"""One episode: its status, its calls, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import anyio

from envport.environment import Environment
from envport.episodes.callers import Turn
from envport.episodes.context import EpisodeContext
from envport.episodes.faults import Fault, close_worker
from envport.episodes.lifecycle import Lifecycle
from envport.episodes.play import CallResult, PlayRecord
from envport.episodes.requests import EpisodeStart, OpenRequest
from envport.episodes.scoring import score_final_state
from envport.episodes.states import GONE, LIVE
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
from envport.runtimes import ProgressSink, Runtime, StepResult, Worker
from envport.telemetry.subject import EpisodeSubject, episode_at_hand
from envport.telemetry.tracing import annotate
from envport.tools.content import observe, text_observation, told_of_its_end
from envport.types import EpisodeInfo, FaultOwner, LegalCall, Observation, Outcome, Reason, Status, Task, Trajectory

__all__ = ["Episode"]

# A client that gets the last answer usually opens its next episode at once. After this short wait, the place of the
# ended episode is usually free again.
_CLOSE_GRACE = 0.02


class Episode:
    """An episode and everything that belongs to it.

    Args:
        handle: The id that clients use.
        spec: The environment.
        request: The request that opened it.
        start: Its task and seed.
        runtime: The runtime that runs the environment.
        context: What all episodes of the table share.

    Attributes:
        handle: The id that clients use.
        spec: The environment.
        principal: Name of the principal that owns it.
        start: The task and seed that it last started from.
        first_observation: The first observation.
        last_used: When it was last used, by the monotonic clock.
        created_at: When it was opened, as Unix time in seconds.
    """

    def __init__(
        self,
        handle: str,
        spec: EnvironmentDefinition,
        request: OpenRequest,
        start: EpisodeStart,
        runtime: Runtime,
        context: EpisodeContext,
    ):
        self.handle = handle
        self.spec = spec
        self.principal = request.principal
        self.start = start
        self.subject = EpisodeSubject(spec.name, handle, request.principal, request.labels)
        self._life = Lifecycle(context.clock, partial(context.ended, self.subject))
        self.first_observation = Observation()
        self.last_used = context.clock.monotonic()
        self._reward_in_meta = request.reward_in_meta
        self._secrets = request.secrets
        self._runtime = runtime
        self._context = context
        self._clock = context.clock
        self.created_at = context.clock.time()
        self._started_at = self.last_used
        self._worker: Worker | None = None
        self._scoring = False
        self._lost: WorkerLost | None = None
        self._turn = Turn(context.limits.wait_seconds)
        self._play = PlayRecord(handle, context.trajectories)
        self._resets = 0
        self._callers = 0

    @property
    def status(self) -> Status:
        """Its status."""
        return self._life.status

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; `None` if it has not, and while its final state is being scored."""
        return self._life.outcome

    @property
    def live(self) -> bool:
        """Whether it can still be played."""
        return self.status in LIVE

    @property
    def busy(self) -> bool:
        """Whether a call is running or waiting for its turn."""
        return self._callers > 0

    @property
    def waiting(self) -> int:
        """How many calls wait for their turn."""
        return self._turn.waiting

    @property
    def forgotten(self) -> bool:
        """Whether players are told that there is no such episode: it was closed or has expired."""
        return self.status in GONE and not self._shut_down

    @property
    def _shut_down(self) -> bool:
        return self.outcome is not None and self.outcome.reason == "shutdown"

    @property
    def prompt(self) -> str:
        """The instructions for the player: the task's prompt, or else the environment's."""
        return self.spec.prompt(self.start.known(self.spec).task)

    async def open(self) -> None:
        """Make the environment and reset it.

        Raises:
            InvalidRequest: The environment refused the task or seed; the episode has ended as failed.
            EpisodeFailed: The environment broke; the episode has ended as failed.
        """
        token = episode_at_hand.set(self.subject)
        try:
            async with self._turn:
                await self._begin()
        finally:
            episode_at_hand.reset(token)

    async def reset(self, start: EpisodeStart, admit: Callable[[Episode], Awaitable[None]]) -> None:
        """Start over with a new instance of the environment.

        Args:
            start: The task and seed.
            admit: Takes a place for the episode if it has none. Called when no running call can end the episode.

        Raises:
            UnknownEpisode: It was closed or has expired.
            InvalidRequest: The environment refused the task or seed; the episode has ended as failed.
            EpisodeFailed: The environment broke; the episode has ended as failed. Or the gateway was shut down.
        """
        self._callers += 1
        try:
            async with self._turn:
                self._check_there()
                await admit(self)
                # After half a reset, the episode could be neither played nor reaped.
                with anyio.CancelScope(shield=True):
                    await self._start_over(start)
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
            InvalidRequest: The latest call had this id, but another tool or other arguments.
            UnknownEpisode: It was closed or has expired.
            EpisodeOver: It has ended.
            EpisodeBusy: An earlier call is still running, although its caller has left.
            InvalidArguments: The arguments break the schema; the environment was not touched.
            EpisodeFailed: The environment broke; the episode has ended as failed. Or the gateway was shut down.
        """
        if tool not in self.start.tools.tools:
            raise UnknownTool(self._unknown(tool))
        if self._scoring:
            # Its turn would come after the score, and the answer does not depend on that.
            return self._given(tool, arguments, call_id)
        self._callers += 1
        try:
            await self._turn.take(tool, call_id)
            try:
                if self.status != "running" or (call_id is not None and self._play.last.is_of(call_id)):
                    return self._given(tool, arguments, call_id)
                # A call that has begun is finished and recorded, even if its caller disconnects.
                result: CallResult | None = None
                with anyio.CancelScope(shield=True):
                    step = self._step(tool, arguments, progress)
                    kept = step if call_id is None else self._play.last.keep(call_id, tool, arguments, step)
                    result = await kept
                assert result is not None
                return result
            finally:
                self._turn.give_back()
        finally:
            self._callers -= 1
            self.touch()
            if self._worker is not None and not self.live:
                await self._let_close()

    async def legal_calls(self) -> list[LegalCall] | None:
        """The calls that make sense now; `None` if the environment does not say. For its owner, never for the player.

        Raises:
            UnknownEpisode: It was closed or has expired.
            EpisodeOver: It has ended.
            EpisodeFailed: The environment broke; the episode has ended as failed.
        """
        if self.spec.cls.legal_calls is Environment.legal_calls:
            return None
        self._callers += 1
        try:
            async with self._turn:
                if self.status != "running":
                    raise self._over()
                # A cancelled call would cost the episode its worker.
                with anyio.CancelScope(shield=True):
                    return await self._legal_calls()
        finally:
            self._callers -= 1
            self.touch()
        raise AssertionError

    async def _legal_calls(self) -> list[LegalCall] | None:
        assert self._worker is not None
        try:
            return await self._worker.legal_calls()
        except (Exception, SystemExit) as error:
            await self._fail(Fault.of(error), "in legal_calls()")

    def touch(self) -> None:
        """Restart the idle timer."""
        self.last_used = self._clock.monotonic()

    async def finish(self) -> None:
        """End the episode, because its player has stopped, and wait until its reward is known.

        Waits for the running call first. An episode that has ended is not ended again.
        """
        self._callers += 1
        try:
            async with self._turn:
                if self.status == "running":
                    self.end("truncated", "finished", f"It was finished by its owner after {self._play.counted}.")
        finally:
            self._callers -= 1
            self.touch()
        if self._worker is not None and not self.live:
            self._context.start(self.release)
        await self._life.decided()

    def end(self, status: Status, reason: Reason, message: str, *, fault: FaultOwner | None = None) -> None:
        """Give the episode an outcome, unless it has one already. `release` scores it and frees what it holds.

        If its final state is to be scored, it gets the outcome after that.
        """
        outcome = Outcome(status=status, reason=reason, message=message, fault=fault)
        self._life.end(outcome, to_score=self.spec.scored)

    def check_time(self) -> bool:
        """Truncate the episode if its time is over, and return whether it was. A running call continues."""
        limit = self._context.limits.seconds(self.spec)
        if limit is None or self.status != "running" or self._clock.monotonic() - self._started_at < limit:
            return False
        self.end("truncated", "time_limit", f"It was truncated at its limit of {limit:g} s.")
        return True

    async def release(self) -> None:
        """Free the environment, after the running call, if there is one."""
        async with self._turn:
            if not self.live:
                await self._retire()

    def info(self) -> EpisodeInfo:
        """The state of the episode, for the control plane."""
        play, start = self._play, self.start.known(self.spec)
        expires_in = None
        if self.status not in GONE:
            idle = self._clock.monotonic() - self.last_used
            expires_in = max(0.0, self._context.limits.idle_seconds - idle)
        return EpisodeInfo(
            episode_id=self.handle,
            environment=self.spec.name,
            split=start.split,
            task=start.task,
            task_index=start.task_index,
            seed=start.seed,
            status=self.status,
            outcome=self.outcome,
            steps=play.steps,
            errors=play.errors,
            reward=self.reward,
            rewards=list(play.rewards),
            score=play.score,
            created_at=self.created_at,
            ended_at=self._life.ended_at,
            expires_in=expires_in,
            environment_seconds=play.environment_seconds,
            resets=self._resets,
            fingerprint=start.tools.fingerprint,
            labels=dict(self.subject.labels),
        )

    async def trajectory(self) -> Trajectory:
        """The trajectory so far."""
        first, steps, dropped = await self._context.trajectories.read(self.handle)
        return Trajectory(
            episode=self.info(),
            environment_version=self.spec.cls.version,
            fingerprint=self.start.tools.fingerprint,
            first_observation=first,
            steps=list(steps),
            dropped_steps=dropped,
        )

    @property
    def reward(self) -> float | None:
        """The episode's reward so far; `None` if there is none, and if the episode is lost."""
        if self.outcome is not None and self.outcome.lost:
            return None
        return self._play.reward(self.spec.cls.reward)

    def _given(self, tool: str, arguments: Mapping[str, Any], call_id: str | None) -> CallResult:
        """The answer to a call that is not played: the one that was given before, or that the episode is over."""
        if call_id is not None and self._play.last.is_of(call_id):
            return self._play.last.given(tool, arguments)
        raise self._over()

    def _over(self) -> EpisodeOver:
        self._check_there()
        over = self._life.over
        how = over.message if over is not None else "It has not started."
        return EpisodeOver(
            f"The episode is over and takes no more calls. {how} To play on, start a new one: call start_episode "
            "where the tool list has it, or ask whoever gave you this address to open another episode.",
            over.fault if over is not None else None,
        )

    def _unknown(self, tool: str) -> str:
        if tool not in self.spec.tools:
            return f"Unknown tool: {tool}"
        return f"Unknown tool: {tool} is not one of this episode's tools: {', '.join(self.start.tools.tools)}"

    def _check_there(self) -> None:
        if self._shut_down:
            # Not `EpisodeOver`: the episode was cut short, so its rewards so far must not count as its score.
            raise EpisodeFailed(
                "The gateway was shut down, and the episode ended with it. This is not the fault of your call. Start "
                "a new episode when the gateway runs again, or ask whoever gave you this address to open another one.",
                "infrastructure",
            )
        if self.status in GONE:
            raise UnknownEpisode

    async def _start_over(self, start: EpisodeStart) -> None:
        await self._release_worker()
        # The owner may have closed the episode while its environment was being closed.
        if self.status in GONE:
            raise UnknownEpisode
        self._life.start_over()
        self.start = start
        self._play = PlayRecord(self.handle, self._context.trajectories)
        self._resets += 1
        await self._begin()

    async def _begin(self) -> None:
        self._lost = None
        task, bounds = self.start.task, self._context.limits.bounds(self.spec)
        annotate({"envport.task.split": self.start.split, "envport.task.id": task.id if task is not None else None})
        try:
            self._worker = await self._runtime.open(self.spec, bounds, self._lost_between_calls)
            first = await self._worker.reset(seed=self.start.seed, task=task, secrets=self._secrets)
        except ToolError as refused:
            # As an observation, so that the text has no characters that JSON cannot carry.
            why = text_observation(str(refused)).text
            self.end("failed", "refused", f"The environment refused to begin: {why}", fault="environment")
            await self._retire()
            raise InvalidRequest(why) from None
        except (Exception, SystemExit) as error:
            await self._fail(Fault.of(error).before_play(), "while it was being reset")
        if self.status == "opening":
            self._life.become("running")
        self.first_observation = _shown_first(task, first)
        self._started_at = self._clock.monotonic()
        await self._play.begin(self.first_observation)
        self.last_used = self._clock.monotonic()

    async def _step(self, tool: str, arguments: Mapping[str, Any], progress: ProgressSink | None) -> CallResult:
        assert self._worker is not None
        play, clock = self._play, self._clock
        started_at, begin = clock.time(), clock.monotonic()
        error: EnvportError | None = None
        try:
            result = await self._worker.call(tool, arguments, progress)
        except InvalidArguments as refused:
            play.errors += 1
            await play.record(tool, arguments, _said(refused), started_at, error=refused.code)
            raise
        except ToolError as refused:
            play.errors += 1
            error, result = refused, _said(refused)
        except (Exception, SystemExit) as broken:
            fault, where = Fault.of(broken), f"in tool {tool!r}"
            if fault.owner != "player":
                seconds = clock.monotonic() - begin
                try:
                    nothing = StepResult(Observation())
                    await play.record(tool, arguments, nothing, started_at, seconds, EpisodeFailed.code)
                finally:
                    await self._fail(fault, where)
            self._end_broken(fault, where)
            error = fault.told()
            result = _said(error)
        seconds = clock.monotonic() - begin
        play.count(result.reward, seconds)
        result = self._end_if_over(tool, result)
        await play.record(tool, arguments, result, started_at, seconds, error.code if error else None)
        return CallResult(
            observation=result.observation,
            step=play.steps,
            is_error=error is not None,
            reward=result.reward,
            terminated=result.terminated,
            truncated=result.truncated,
            outcome=self._life.over,
            reward_in_meta=self._reward_in_meta,
        )

    def _end_if_over(self, tool: str, result: StepResult) -> StepResult:
        """End the episode if the step ended it. Returns the result as the player is told of it."""
        if self.status == "failed":
            return result
        counted, limit = self._play.counted, self.spec.prototype.max_steps
        if result.terminated:
            self.end("terminated", "terminated", f"It terminated after {counted}.")
        elif result.truncated:
            self.end("truncated", "truncated", f"It was truncated after {counted}.")
        elif limit is not None and self._play.steps >= limit:
            self.end("truncated", "step_limit", f"It was truncated at its limit of {counted}.")
            return self._cut_off(tool, result)
        elif (over := self._life.over) is not None and over.status == "truncated":
            # The time limit was reached while the call was running.
            return self._cut_off(tool, result)
        return result

    def _cut_off(self, tool: str, result: StepResult) -> StepResult:
        """The result of the call at which a limit ended the episode. The environment does not know of that limit."""
        assert self._life.over is not None
        words = f"The episode is over. {self._life.over.message}"
        more_keys = self.spec.tools[tool].more_keys
        return replace(
            result, truncated=True, observation=told_of_its_end(result.observation, words, more_keys=more_keys)
        )

    def _lost_between_calls(self, lost: WorkerLost) -> None:
        self._lost = lost
        self._context.start(partial(self._lose, lost))

    async def _lose(self, lost: WorkerLost) -> None:
        """End the episode as failed, because its worker was lost between two calls."""
        async with self._turn:
            # A call in the meantime may have noticed the loss already, and a reset has made a new worker.
            if self.status == "running" and self._lost is lost:
                self._end_broken(Fault.of(lost), "between two calls")
                await self._retire()

    def _end_broken(self, fault: Fault, where: str) -> None:
        fault.log(self.subject, where)
        self._life.end(fault.outcome, to_score=False)

    async def _fail(self, fault: Fault, where: str) -> NoReturn:
        self._end_broken(fault, where)
        await self._retire()
        raise fault.raised() from None

    async def _let_close(self) -> None:
        """Start closing the environment, and wait only briefly for it, so that the answer is not delayed."""
        closing = self._context.start(self.release)
        if self._life.ending is None:
            await asyncio.wait([closing], timeout=_CLOSE_GRACE)

    async def _retire(self) -> None:
        await self._release_worker()
        self.start = self.start.kept()
        self._context.released(self.subject)

    async def _score(self, ending: Outcome) -> None:
        """Score the final state, and give the episode its outcome."""
        assert self._worker is not None
        bounds = self._context.limits.bounds(self.spec)
        self._scoring = True
        try:
            score = await score_final_state(
                self.spec, self._worker, self.start.task, partial(self._trajectory, ending), bounds.score_seconds
            )
        except (Exception, SystemExit) as error:
            fault = Fault.of(error)
            fault.log(self.subject, "while its final state was scored")
            self._life.scored(fault.outcome)
        else:
            self._play.take_score(score)
            self._life.scored(None)
        finally:
            self._scoring = False
            self._life.give_up()

    async def _trajectory(self, ending: Outcome) -> Trajectory:
        """The trajectory, with the end that the episode is to have."""
        trajectory = await self.trajectory()
        episode = trajectory.episode.model_copy(update={"status": ending.status, "outcome": ending})
        return trajectory.model_copy(update={"episode": episode})

    async def _release_worker(self) -> None:
        if self._life.ending is not None:
            await self._score(self._life.ending)
        worker, self._worker = self._worker, None
        if worker is not None:
            await close_worker(worker, self.subject, self.outcome)


def _shown_first(task: Task | None, observation: Observation) -> Observation:
    """The first observation, with the prompt in front if that is more than text: every player gets to see it there."""
    if task is None or isinstance(task.prompt, str):
        return observation
    return observation.model_copy(update={"content": (*task.prompt, *observation.content)})


def _said(refused: EnvportError) -> StepResult:
    said = text_observation(str(refused))
    # The runtime has made it an observation.
    more = refused.content if isinstance(refused, ToolError) else None
    return StepResult(observe([said, more]) if more is not None else said)
