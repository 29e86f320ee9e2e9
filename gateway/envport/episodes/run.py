"""One run of an episode, from a reset to the next one: its environment, and what is done with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from envport.definition import EnvironmentDefinition
from envport.episodes.context import EpisodeContext
from envport.episodes.faults import Fault, close_worker
from envport.episodes.lifecycle import Lifecycle
from envport.episodes.past import NotPutBack, Past, play_again, said
from envport.episodes.play import CallResult, PlayRecord
from envport.episodes.requests import EpisodeStart
from envport.episodes.resume_points import ResumePoints
from envport.episodes.scoring import score_final_state
from envport.errors import (
    AtCapacity,
    EnvportError,
    EpisodeFailed,
    InvalidArguments,
    InvalidRequest,
    StoreUnavailable,
    ToolError,
    WorkerLost,
)
from envport.runtimes import ProgressSink, Runtime, StepResult, Worker
from envport.telemetry.subject import EpisodeSubject
from envport.telemetry.tracing import annotate
from envport.tools.content import text_observation, told_of_its_end
from envport.trajectories import EpisodeSnapshot, ResumePoint
from envport.types import LegalCall, Observation, StepRecord, Task, Trajectory

__all__ = ["EpisodeRun"]

_NOTHING = Observation()
_NO_POINT = (None, None)


class EpisodeRun:
    """One run of an episode. A reset makes a new one.

    Args:
        spec: The environment.
        subject: The episode, for logs.
        life: The status of the episode, which a run changes when it begins and when it ends.
        start: Its task and seed.
        context: What all episodes of the table share.
        resumes: Whether it is to go on after a restart of the gateway.

    Attributes:
        start: Its task and seed.
        first_observation: The first observation.
        record: What is counted and recorded of its calls.
        scoring: Whether the final state is being scored.
    """

    def __init__(
        self,
        spec: EnvironmentDefinition,
        subject: EpisodeSubject,
        life: Lifecycle,
        start: EpisodeStart,
        context: EpisodeContext,
        *,
        resumes: bool = False,
    ):
        self.start = start
        self.first_observation = _NOTHING
        self.record = PlayRecord(subject.episode_id, context.trajectories, spec.cls.reward)
        self.scoring = False
        self._spec = spec
        self._subject = subject
        self._life = life
        self._clock = context.clock
        self._limits = context.limits
        self._started_at = context.clock.monotonic()
        self._worker: Worker | None = None
        self._points = ResumePoints(spec, subject) if resumes else None

    @property
    def holds_environment(self) -> bool:
        """Whether its environment has not been freed."""
        return self._worker is not None

    @property
    def at_once(self) -> bool:
        """Whether a call never waits, so that it cannot be cancelled once it has begun."""
        return self._worker is not None and self._worker.at_once and self.record.at_once

    async def begin(
        self,
        runtime: Runtime,
        secrets: Mapping[str, str],
        on_lost: Callable[[WorkerLost], None],
        snapshot: Callable[[], EpisodeSnapshot],
    ) -> None:
        """Make the environment and reset it.

        Args:
            runtime: What runs the environment.
            secrets: Secrets for the environment.
            on_lost: Called if the environment is lost between two calls.
            snapshot: Returns the episode as it is now, for the trajectory store.

        Raises:
            InvalidRequest: The environment refused the task or seed; the episode has ended as failed.
            AtCapacity: A system that the environment uses has no room now; the episode has ended as failed.
            EpisodeFailed: The environment broke; the episode has ended as failed.
        """
        task = self.start.task
        annotate({"envport.task.split": self.start.split, "envport.task.id": task.id if task is not None else None})
        try:
            self._worker = await runtime.open(self._spec, self._limits.bounds(self._spec), on_lost)
            first = await self._worker.reset(seed=self.start.seed, task=task, secrets=secrets)
        except ToolError as refused:
            # As an observation, so that the text has no characters that JSON cannot carry.
            why = text_observation(str(refused)).text
            self._life.end("failed", "refused", f"The environment refused to begin: {why}", fault="environment")
            raise InvalidRequest(why) from None
        except AtCapacity as full:
            self._life.end("failed", "upstream", f"The environment could not begin: {full}", fault="infrastructure")
            raise
        except (Exception, SystemExit) as error:
            raise self._broken(Fault.of(error).before_play(), "while it was being reset") from None
        if self._life.status == "opening":
            self._life.become("running")
        self.first_observation = _shown_first(task, first)
        self._started_at = self._clock.monotonic()
        try:
            point = await self._points.after(0, self._worker, None) if self._points is not None else None
            await self.record.begin(self.first_observation, snapshot, point)
        except WorkerLost as lost:
            raise self._broken(Fault.of(lost), "in snapshot()") from None
        except StoreUnavailable as unavailable:
            raise self._broken(Fault.unrecorded(unavailable), "at its beginning") from None

    async def put_back(
        self,
        runtime: Runtime,
        secrets: Mapping[str, str],
        on_lost: Callable[[WorkerLost], None],
        snapshot: Callable[[], EpisodeSnapshot],
        past: Past,
        *,
        reward_in_meta: bool,
    ) -> None:
        """Make the environment, and put it into the state that it had after the calls of the past.

        Args:
            runtime: As for `begin`, like the next three.
            secrets: Secrets for the environment.
            on_lost: Called if the environment is lost between two calls.
            snapshot: Returns the episode as it is now.
            past: What the episode was before. It has been counted.
            reward_in_meta: Whether the player may be shown the reward.

        Raises:
            NotPutBack: That cannot be done. The episode has not ended.
            StoreUnavailable: It cannot be recorded. The episode has not ended.
        """
        task = self.start.task
        try:
            self._worker = await runtime.open(self._spec, self._limits.bounds(self._spec), on_lost)
            first = await self._worker.reset(seed=self.start.seed, task=task, secrets=secrets)
            last = await play_again(self._spec, self._worker, _shown_first(task, first), past)
            point = None
            if self._points is not None:
                point = await self._points.after(len(past.steps), self._worker, None, over=past.ended)
        except NotPutBack:
            raise
        except (Exception, SystemExit) as error:
            fault = Fault.of(error)
            fault.log(self._subject, "while it was being put back")
            raise NotPutBack(f"its environment failed meanwhile: {fault.what}") from None
        if self._life.status == "opening":
            self._life.become("running")
        self._started_at = self._clock.monotonic() - past.seconds
        if past.forked_from is not None:
            await self.record.begin(self.first_observation, snapshot, point)
            await self.record.copy(past)
        elif past.ended:
            self._end_again(past.steps[-1], last)
        self.record.recall_answer(past, self._life.over, reward_in_meta=reward_in_meta)

    def _end_again(self, step: StepRecord, result: StepResult | None) -> None:
        """End the episode as its last call did, before the gateway could record that."""
        self._end_if_over(step.tool, result or StepResult(step.observation))
        if self._life.over is None:
            self._life.end("truncated", "time_limit", "It was truncated at its time limit.")

    def recall(self, past: Past) -> None:
        """Count what the episode was before."""
        self.first_observation = past.first_observation
        self.record.recall(past)

    async def step(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        progress: ProgressSink | None,
        *,
        reward_in_meta: bool,
        call_id: str | None = None,
    ) -> CallResult:
        """Call a tool.

        Args:
            tool: Name of the tool.
            arguments: The arguments as parsed JSON.
            progress: Where the tool's progress goes.
            reward_in_meta: Whether the player may be shown the reward.
            call_id: Id of the call, if it has one.

        Raises:
            InvalidArguments: The arguments break the schema; the environment was not touched.
            EpisodeFailed: The environment broke, or the call cannot be recorded; the episode has ended as failed.
        """
        try:
            # Check before the call: if the disk is full, the call must not be played, because it could not be recorded.
            self.record.check()
            return await self._step(tool, arguments, progress, reward_in_meta, call_id)
        except StoreUnavailable as unavailable:
            raise self._broken(Fault.unrecorded(unavailable), f"in tool {tool!r}") from None

    async def _step(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        progress: ProgressSink | None,
        reward_in_meta: bool,
        call_id: str | None,
    ) -> CallResult:
        assert self._worker is not None
        started_at, began = self._clock.time(), self._clock.monotonic()
        error: EnvportError | None = None
        try:
            result = await self._worker.call(tool, arguments, progress)
        except InvalidArguments as refused:
            self.record.errors += 1
            # The state has not changed, so it is not copied again.
            point, _ = await self._point(call_id, over=True) if self._points is not None else _NO_POINT
            await self.record.record(tool, arguments, said(refused), started_at, error=refused.code, point=point)
            raise
        except ToolError as refused:
            self.record.errors += 1
            error, result = refused, said(refused)
        except (Exception, SystemExit) as broken:
            fault, where = Fault.of(broken), f"in tool {tool!r}"
            if fault.owner != "player":
                seconds = self._clock.monotonic() - began
                try:
                    await self.record.record(
                        tool, arguments, StepResult(_NOTHING), started_at, seconds, EpisodeFailed.code
                    )
                finally:
                    raise self._broken(fault, where) from None
            self.break_off(fault, where)
            error = fault.told()
            result = said(error)
        seconds = self._clock.monotonic() - began
        self.record.count(result.reward, seconds)
        result = self._end_if_over(tool, result)
        point, lost = await self._point(call_id) if self._points is not None else _NO_POINT
        code = error.code if error else None
        await self.record.record(tool, arguments, result, started_at, seconds, code, point)
        if lost is not None:
            self.break_off(Fault.of(lost), "in snapshot()")
        return CallResult(
            observation=result.observation,
            step=self.record.steps,
            is_error=error is not None,
            reward=result.reward,
            terminated=result.terminated,
            truncated=result.truncated,
            outcome=self._life.over,
            reward_in_meta=reward_in_meta,
        )

    async def _point(self, call_id: str | None, *, over: bool = False) -> tuple[ResumePoint | None, WorkerLost | None]:
        """What is recorded to resume the episode after a call; or how its environment was lost meanwhile."""
        assert self._worker is not None
        assert self._points is not None
        index, over = self.record.calls + 1, over or self._life.status != "running"
        try:
            return await self._points.after(index, self._worker, call_id, over=over), None
        except WorkerLost as lost:
            return await self._points.after(index, self._worker, call_id, over=True), lost

    async def snapshot(self) -> bytes:
        """A copy of the state of the environment.

        Raises:
            EpisodeFailed: The environment broke; the episode has ended as failed.
        """
        assert self._worker is not None
        try:
            return await self._worker.snapshot()
        except (Exception, SystemExit) as error:
            raise self._broken(Fault.of(error), "in snapshot()") from None

    async def legal_calls(self) -> list[LegalCall] | None:
        """The calls that make sense now; `None` if the environment does not say.

        Raises:
            EpisodeFailed: The environment broke; the episode has ended as failed.
        """
        assert self._worker is not None
        try:
            return await self._worker.legal_calls()
        except (Exception, SystemExit) as error:
            raise self._broken(Fault.of(error), "in legal_calls()") from None

    def check_time(self) -> bool:
        """Truncate the episode if its time is over, and return whether it was. A running call continues."""
        limit = self._limits.seconds(self._spec)
        if limit is None or self._life.status != "running" or self._clock.monotonic() - self._started_at < limit:
            return False
        self._life.end("truncated", "time_limit", f"It was truncated at its limit of {limit:g} s.")
        return True

    def break_off(self, fault: Fault, where: str) -> None:
        """End the episode as failed.

        Args:
            fault: The fault.
            where: What the environment was doing, for the log.
        """
        fault.log(self._subject, where)
        self._life.break_off(fault.outcome)

    async def close(self, trajectory: Callable[[], Awaitable[Trajectory]] | None) -> None:
        """Score the final state, if that is due, and free the environment.

        Args:
            trajectory: Reads the trajectory; `None` if the final state is not to be scored.
        """
        if trajectory is not None:
            await self._score(trajectory)
        worker, self._worker = self._worker, None
        if worker is not None:
            await close_worker(worker, self._subject, self._life.outcome)

    async def _score(self, trajectory: Callable[[], Awaitable[Trajectory]]) -> None:
        assert self._worker is not None
        seconds = self._limits.bounds(self._spec).score_seconds
        self.scoring = True
        try:
            score = await score_final_state(self._spec, self._worker, self.start.task, trajectory, seconds)
        except (Exception, SystemExit) as error:
            fault = Fault.of(error)
            fault.log(self._subject, "while its final state was scored")
            self._life.scored(fault.outcome)
        else:
            self.record.take_score(score)
            self._life.scored(None)
        finally:
            self.scoring = False
            self._life.give_up()

    def _broken(self, fault: Fault, where: str) -> EpisodeFailed:
        self.break_off(fault, where)
        return fault.raised()

    def _end_if_over(self, tool: str, result: StepResult) -> StepResult:
        """End the episode if the step ended it. Returns the result as the player is told of it."""
        life = self._life
        if life.status == "failed":
            return result
        record, limit = self.record, self._spec.prototype.max_steps
        if result.terminated:
            life.end("terminated", "terminated", f"It terminated after {record.counted}.")
        elif result.truncated:
            life.end("truncated", "truncated", f"It was truncated after {record.counted}.")
        elif limit is not None and record.steps >= limit:
            life.end("truncated", "step_limit", f"It was truncated at its limit of {record.counted}.")
            return self._cut_off(tool, result)
        elif life.over is not None and life.over.status == "truncated":
            # The time limit was reached while the call was running.
            return self._cut_off(tool, result)
        return result

    def _cut_off(self, tool: str, result: StepResult) -> StepResult:
        """The result of the call at which a limit ended the episode. The environment does not know of that limit."""
        assert self._life.over is not None
        words = f"The episode is over. {self._life.over.message}"
        more_keys = self.start.tools.tools[tool].more_keys
        return result._replace(
            truncated=True, observation=told_of_its_end(result.observation, words, more_keys=more_keys)
        )


def _shown_first(task: Task | None, observation: Observation) -> Observation:
    """The first observation. A prompt that is more than text is put in front of it, where every player sees it."""
    if task is None or isinstance(task.prompt, str):
        return observation
    return observation.model_copy(update={"content": (*task.prompt, *observation.content)})
