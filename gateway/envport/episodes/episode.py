"""One episode: its status, its calls, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import anyio

from envport.definition import EnvironmentDefinition
from envport.environment import Environment
from envport.episodes.callers import Turn
from envport.episodes.context import EpisodeContext
from envport.episodes.faults import Fault
from envport.episodes.lifecycle import Lifecycle
from envport.episodes.past import Past, origin_of, why_not_resumed
from envport.episodes.play import CallResult, PlayRecord
from envport.episodes.requests import EpisodeStart, OpenRequest
from envport.episodes.run import EpisodeRun
from envport.episodes.states import GONE, LIVE
from envport.errors import (
    AtCapacity,
    Draining,
    EpisodeFailed,
    EpisodeOver,
    InvalidRequest,
    UnknownEpisode,
    UnknownTool,
    WorkerLost,
)
from envport.runtimes import ProgressSink, Runtime
from envport.telemetry.subject import EpisodeSubject, episode_at_hand
from envport.trajectories import EpisodeSnapshot, EpisodeState
from envport.types import EpisodeInfo, FaultOwner, LegalCall, Observation, Outcome, Reason, Status, Trajectory

__all__ = ["Episode"]

# A client that gets the last answer usually opens its next episode at once. After this short wait, the place of the
# ended episode is usually free again.
_CLOSE_GRACE = 0.02
_CLOSED = Outcome(status="closed", reason="closed", message="It was closed by its owner.")


class Episode:
    """An episode and everything that belongs to it.

    Args:
        handle: The id that clients use.
        spec: The environment.
        request: The request that opened it.
        start: Its task and seed.
        runtime: The runtime that runs the environment.
        context: What all episodes of the table share.
        past: What is known of what it was before, if it is put back with `put_back` and not opened.

    Attributes:
        handle: The id that clients use.
        spec: The environment.
        principal: Name of the principal that owns it.
        provenance: What it is made of.
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
        past: Past | None = None,
    ):
        self.handle = handle
        self.spec = spec
        self.principal = request.principal
        self.subject = EpisodeSubject(spec.name, handle, request.principal, request.labels)
        self._life = Lifecycle(context.clock, partial(context.ended, self.subject), scored=spec.scored)
        # The request has the secrets that the environment is served with, too.
        with_secrets = bool(request.secrets) and dict(request.secrets) != dict(spec.secrets)
        self.provenance = origin_of(spec, with_secrets=with_secrets)
        self._resumes = context.trajectories.resumes and why_not_resumed(spec, self.provenance) is None
        self._run = EpisodeRun(spec, self.subject, self._life, start, context, resumes=self._resumes)
        self.last_used = context.clock.monotonic()
        self._reward_in_meta = request.reward_in_meta
        self._secrets = request.secrets
        self._runtime = runtime
        self._context = context
        self._clock = context.clock
        self.created_at = context.clock.time() if past is None or past.forked_from is not None else past.created_at
        self._turn = Turn(context.limits.wait_seconds)
        self._resets = past.resets if past is not None else 0
        self._forked = (past.forked_from, len(past.steps)) if past is not None else (None, 0)
        self._suspended = False
        self._callers = 0

    @property
    def start(self) -> EpisodeStart:
        """The task and seed that it last started from."""
        return self._run.start

    @property
    def first_observation(self) -> Observation:
        """The first observation."""
        return self._run.first_observation

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
    def _running(self) -> bool:
        return self.status == "running" and not self._suspended

    @property
    def busy(self) -> bool:
        """Whether a call is running or waiting for its turn."""
        return self._callers > 0

    @property
    def at_once(self) -> bool:
        """Whether a call is answered without waiting for anything."""
        return self._turn.free and (self._run.at_once or not self._run.holds_environment)

    @property
    def waiting(self) -> int:
        """How many calls wait for their turn."""
        return self._turn.waiting

    @property
    def forgotten(self) -> bool:
        """Whether players are told that there is no such episode: it was closed or has expired."""
        return self.status in GONE and not self._shut_down

    @property
    def _record(self) -> PlayRecord:
        return self._run.record

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
        self._check_tool(tool)
        if self._run.scoring:
            # Its turn would come after the score, and the answer does not depend on that.
            return self._given(tool, arguments, call_id)
        self._callers += 1
        try:
            await self._turn.take(tool, call_id)
            try:
                if not self._running or (call_id is not None and self._record.last.is_of(call_id)):
                    return self._given(tool, arguments, call_id)
                # While it waited, the episode may have been reset to a task with other tools.
                self._check_tool(tool)
                step = self._step(tool, arguments, progress, call_id)
                if call_id is not None:
                    step = self._record.last.keep(call_id, tool, arguments, step)
                return await (step if self._run.at_once else _finished(step))
            finally:
                self._turn.give_back()
        finally:
            self._callers -= 1
            self.touch()
            if self._run.holds_environment and not self.live:
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
                if not self._running:
                    raise self._over()
                # A cancelled call would cost the episode its worker.
                with anyio.CancelScope(shield=True):
                    return await self._legal_calls()
        finally:
            self._callers -= 1
            self.touch()
        raise AssertionError

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
                if self._running:
                    self.end("truncated", "finished", f"It was finished by its owner after {self._record.counted}.")
        finally:
            self._callers -= 1
            self.touch()
        if self._run.holds_environment and not self.live:
            await self.free()
        await self._life.decided()

    def end(self, status: Status, reason: Reason, message: str, *, fault: FaultOwner | None = None) -> None:
        """Give the episode an outcome, unless it has one already. `release` scores it and frees what it holds.

        If its final state is to be scored, it gets the outcome after that.
        """
        self._life.end(status, reason, message, fault=fault)

    def end_by_owner(self) -> None:
        """End the episode as closed. `free` frees what it holds."""
        self._life.end_as(_CLOSED)

    def check_time(self) -> bool:
        """Truncate the episode if its time is over, and return whether it was. A running call continues."""
        return self._run.check_time()

    async def release(self) -> None:
        """Free the environment, after the running call, if there is one."""
        async with self._turn:
            if not self.live:
                await self._retire()

    async def free(self) -> asyncio.Task[None] | None:
        """Free the environment now, if that waits for nothing, or else in a task, which is returned."""
        if self.at_once and self._life.ending is None:
            await self.release()
            return None
        return self._context.start(self.release)

    def info(self) -> EpisodeInfo:
        """The state of the episode, for the control plane."""
        record, life, start = self._run.record, self._life, self.start.known(self.spec)
        expires_in = None
        if life.status not in GONE:
            idle = self._clock.monotonic() - self.last_used
            expires_in = max(0.0, self._context.limits.idle_seconds - idle)
        return EpisodeInfo(
            episode_id=self.handle,
            environment=self.spec.name,
            split=start.split,
            task=start.task,
            task_index=start.task_index,
            seed=start.seed,
            status=life.status,
            outcome=life.outcome,
            steps=record.steps,
            errors=record.errors,
            reward=self.reward,
            rewards=record.rewards,
            score=record.score,
            created_at=self.created_at,
            ended_at=life.ended_at,
            expires_in=expires_in,
            environment_seconds=record.environment_seconds,
            resets=self._resets,
            fingerprint=start.tools.fingerprint,
            labels=dict(self.subject.labels),
        )

    def state(self) -> EpisodeState:
        """How far it has come, or how it ended, for the trajectory store."""
        record, life = self._record, self._life
        return EpisodeState(
            life.status,
            life.outcome,
            record.steps,
            record.errors,
            self.reward,
            record.score,
            record.environment_seconds,
            self.created_at,
            life.ended_at,
        )

    def snapshot(self) -> EpisodeSnapshot:
        """The episode as it is now, for the trajectory store."""
        start = self.start.known(self.spec)
        return EpisodeSnapshot(
            state=self.state(),
            episode_id=self.handle,
            environment=self.spec.name,
            split=start.split,
            task=start.task,
            task_index=start.task_index,
            seed=start.seed,
            resets=self._resets,
            labels=dict(self.subject.labels),
            fingerprint=start.tools.fingerprint,
            principal=self.principal,
            environment_version=self.spec.cls.version,
            prompt=self.spec.prompt(start.task),
            first_observation=self.first_observation,
            tools=start.tools.listing,
            reward_in_meta=self._reward_in_meta,
            origin=self.provenance,
            forked_from=self._forked[0],
            forked_at=self._forked[1] if self._forked[0] is not None else None,
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
        outcome = self._life.outcome
        return None if outcome is not None and outcome.lost else self._run.record.reward

    def _given(self, tool: str, arguments: Mapping[str, Any], call_id: str | None) -> CallResult:
        """The answer to a call that is not played: the one that was given before, or that the episode is over."""
        if call_id is not None and self._record.last.is_of(call_id):
            return self._record.last.given(tool, arguments)
        raise self._over()

    def _over(self) -> EpisodeOver:
        self._check_there()
        over = self._life.over
        how = over.message if over is not None else "It has not started."
        return EpisodeOver(
            f"The episode is over and takes no more calls. {how} To play on, start a new one: call start_episode "
            "where the tool list has it, or ask whoever gave you this address to open another episode.",
            over.fault if over is not None else None,
            over.reason if over is not None and over.fault is not None else None,
        )

    def _check_tool(self, tool: str) -> None:
        tools = self.start.tools.tools
        if tool in tools:
            return
        if tool not in self.spec.tools:
            raise UnknownTool(f"Unknown tool: {tool}")
        raise UnknownTool(f"Unknown tool: {tool} is not one of this episode's tools: {', '.join(tools)}")

    def _check_there(self) -> None:
        if self._suspended:
            raise Draining(
                "This gateway is being stopped. The episode goes on when it runs again: try again in a while."
            )
        if self._shut_down:
            # Not `EpisodeOver`: the episode was cut short, so its rewards so far must not count as its score.
            raise EpisodeFailed(
                "The gateway was shut down, and the episode ended with it. This is not the fault of your call. Start "
                "a new episode when the gateway runs again, or ask whoever gave you this address to open another one.",
                "infrastructure",
                "shutdown",
            )
        if self.status in GONE:
            raise UnknownEpisode

    async def _start_over(self, start: EpisodeStart) -> None:
        await self._release_environment()
        # The owner may have closed the episode while its environment was being closed.
        if self.status in GONE:
            raise UnknownEpisode
        self._life.start_over()
        self._forked = (None, 0)
        self._run = EpisodeRun(self.spec, self.subject, self._life, start, self._context, resumes=self._resumes)
        self._resets += 1
        await self._begin()

    async def _begin(self) -> None:
        on_lost = partial(self._lost_between_calls, self._run)
        try:
            await self._run.begin(self._runtime, self._secrets, on_lost, self.snapshot)
        except (AtCapacity, InvalidRequest, EpisodeFailed):
            await self._retire()
            raise
        self.last_used = self._clock.monotonic()

    async def _step(
        self, tool: str, arguments: Mapping[str, Any], progress: ProgressSink | None, call_id: str | None
    ) -> CallResult:
        reward_in_meta = self._reward_in_meta
        try:
            return await self._run.step(tool, arguments, progress, reward_in_meta=reward_in_meta, call_id=call_id)
        except EpisodeFailed:
            with anyio.CancelScope(shield=True):
                await self._retire()
            raise

    async def _legal_calls(self) -> list[LegalCall] | None:
        try:
            return await self._run.legal_calls()
        except EpisodeFailed:
            await self._retire()
            raise

    def _lost_between_calls(self, run: EpisodeRun, lost: WorkerLost) -> None:
        self._context.start(partial(self._lose, run, lost))

    async def _lose(self, run: EpisodeRun, lost: WorkerLost) -> None:
        """End the episode as failed, because its environment was lost between two calls."""
        async with self._turn:
            # A call in the meantime may have noticed the loss already, and a reset has made a new run.
            if self.status == "running" and self._run is run:
                run.break_off(Fault.of(lost), "between two calls")
                await self._retire()

    async def _let_close(self) -> None:
        """Start closing the environment, and wait only briefly for it, so that the answer is not delayed."""
        closing = await self.free()
        if closing is not None and self._life.ending is None:
            await asyncio.wait([closing], timeout=_CLOSE_GRACE)

    async def _retire(self) -> None:
        await self._release_environment()
        self._run.start = self.start.kept()
        self._context.released(self.subject)

    async def _release_environment(self) -> None:
        ending = self._life.ending
        await self._run.close(partial(self._trajectory, ending) if ending is not None else None)

    async def _trajectory(self, ending: Outcome) -> Trajectory:
        """The trajectory, with the end that the episode is to have."""
        trajectory = await self.trajectory()
        episode = trajectory.episode.model_copy(update={"status": ending.status, "outcome": ending})
        return trajectory.model_copy(update={"episode": episode})


async def _finished(step: Awaitable[CallResult]) -> CallResult:
    """Finish a call that has begun and record it, even if its caller disconnects."""
    with anyio.CancelScope(shield=True):
        return await step
    raise AssertionError
