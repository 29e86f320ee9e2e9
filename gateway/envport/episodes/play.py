"""One play of an episode, from a reset to the next one: its counts, its records and its latest answer."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, NamedTuple

from envport.episodes.past import Past
from envport.errors import EnvportError, InvalidArguments, InvalidRequest, ToolError
from envport.runtimes import StepResult
from envport.trajectories import EpisodeSnapshot, ResumePoint, Totals, TrajectoryStore
from envport.types import Observation, Outcome, StepRecord

__all__ = ["CallResult", "LastAnswer", "PlayRecord"]

_KEPT_REWARDS = 10_000


class CallResult(NamedTuple):
    """The result of a tool call.

    Attributes:
        observation: What the player sees.
        step: How many calls have reached the environment, including this one.
        is_error: Whether the environment answered with a `ToolError`.
        reward: Reward of the step.
        terminated: Whether the task ended with this call.
        truncated: Whether the episode was cut off with this call.
        outcome: How the episode ended, if this call ended it.
        reward_in_meta: Whether the player may be shown the reward.
    """

    observation: Observation
    step: int
    is_error: bool = False
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    outcome: Outcome | None = None
    reward_in_meta: bool = False


class PlayRecord:
    """Counts and records the calls of one play. A reset starts a new one.

    Args:
        handle: Handle of the episode.
        trajectories: Where calls are recorded.
        how: How the reward of the episode comes from those of its steps.

    Attributes:
        steps: Tool calls that reached the environment.
        errors: Tool calls that were refused, or that the environment answered with a `ToolError`.
        environment_seconds: Time spent inside the environment.
        score: The score of the final state.
        last: The answer to the latest call.
    """

    def __init__(self, handle: str, trajectories: TrajectoryStore, how: Literal["sum", "last"]):
        self._handle = handle
        self._how: Literal["sum", "last"] = how
        self._trajectories = trajectories
        self.steps = 0
        self.errors = 0
        self.environment_seconds = 0.0
        self._rewards: deque[float | None] | None = None
        self.score: float | None = None
        self.last = LastAnswer()
        self._records = 0
        self._reward_sum = 0.0
        self._last_reward: float | None = None

    @property
    def rewards(self) -> list[float | None]:
        """The rewards of the latest steps, one for each step, and the score of the final state as the last."""
        return list(self._rewards or ())

    @property
    def at_once(self) -> bool:
        """Whether recording a call waits for nothing."""
        return self._trajectories.at_once

    @property
    def counted(self) -> str:
        """How many steps there were, in words."""
        return f"{self.steps} step{'s' if self.steps != 1 else ''}"

    @property
    def calls(self) -> int:
        """How many calls are recorded, also those that were refused."""
        return self._records

    def recall(self, past: Past) -> None:
        """Count the calls that the episode begins with."""
        for step in past.steps:
            self._recall(step)

    def recall_answer(self, past: Past, outcome: Outcome | None, *, reward_in_meta: bool) -> None:
        """Take the answer to the latest call, for a client that sends it again.

        Args:
            past: What the episode was before.
            outcome: How the call ended it, if it did.
            reward_in_meta: Whether the player may be shown the reward.
        """
        if past.steps and past.point is not None and past.point.index == len(past.steps):
            step = past.steps[-1]
            self.last.recall(past.point.call_id, step, self._answer(step, outcome, reward_in_meta=reward_in_meta))

    def _recall(self, step: StepRecord) -> None:
        self._records += 1
        if step.error in (InvalidArguments.code, ToolError.code):
            self.errors += 1
        if step.error != InvalidArguments.code:
            self.count(step.reward, step.seconds)

    def _answer(self, step: StepRecord, outcome: Outcome | None, *, reward_in_meta: bool) -> CallResult | EnvportError:
        if step.error == InvalidArguments.code:
            return InvalidArguments(step.observation.text)
        return CallResult(
            observation=step.observation,
            step=self.steps,
            is_error=step.error is not None,
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            outcome=outcome,
            reward_in_meta=reward_in_meta,
        )

    async def copy(self, past: Past) -> None:
        """Record the calls that the episode begins with, which were recorded of another one."""
        copied = PlayRecord(self._handle, self._trajectories, self._how)
        for step in past.steps:
            copied._recall(step)
            await self._trajectories.append(self._handle, step, copied.totals)

    @property
    def totals(self) -> Totals:
        """What the play has come to."""
        return Totals(self.steps, self.errors, self.reward, self.environment_seconds)

    def count(self, reward: float | None, seconds: float) -> None:
        """Count a step."""
        self.steps += 1
        self.environment_seconds += seconds
        self._add(reward)

    def take_score(self, score: float | None) -> None:
        """Add the score of the final state, if there is one, as the last reward."""
        self.score = score
        if score is not None:
            self._add(score)

    def _add(self, reward: float | None) -> None:
        if self._rewards is None:
            # Not before: an empty one takes 600 bytes.
            self._rewards = deque(maxlen=_KEPT_REWARDS)
        self._rewards.append(reward)
        if reward is not None:
            self._reward_sum += reward
            self._last_reward = reward

    @property
    def reward(self) -> float | None:
        """The reward so far; `None` if no step had one."""
        return self._reward_sum if self._how == "sum" and self._last_reward is not None else self._last_reward

    def check(self) -> None:
        """Check that a call could be recorded now.

        Raises:
            StoreUnavailable: It could not.
        """
        self._trajectories.check()

    async def begin(
        self, observation: Observation, snapshot: Callable[[], EpisodeSnapshot], point: ResumePoint | None
    ) -> None:
        """Record the first observation.

        Args:
            observation: The observation.
            snapshot: Returns the episode as it is now.
            point: What is recorded to resume it.
        """
        await self._trajectories.begin(self._handle, observation, snapshot, point)

    async def record(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        result: StepResult,
        started_at: float,
        seconds: float = 0.0,
        error: str | None = None,
        point: ResumePoint | None = None,
    ) -> None:
        """Record a call.

        Args:
            tool: Name of the tool.
            arguments: The arguments as parsed JSON.
            result: What the environment returned.
            started_at: Unix time in seconds.
            seconds: How long the environment took.
            error: Code of the error, if the call failed.
            point: What is recorded to resume the episode.
        """
        self._records += 1
        record = StepRecord(
            index=self._records,
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
        await self._trajectories.append(self._handle, record, self.totals, point)


class LastAnswer:
    """The answer to the latest call that had an id, for a client that missed it."""

    def __init__(self) -> None:
        self._call_id: str | None = None
        self._call: tuple[str, Mapping[str, Any]] = ("", {})
        self._answer: CallResult | EnvportError | None = None

    def is_of(self, call_id: str) -> bool:
        """Whether it is the answer to the call with this id."""
        return call_id == self._call_id

    def given(self, tool: str, arguments: Mapping[str, Any]) -> CallResult:
        """Return the answer again.

        Args:
            tool: The tool of the call that was sent again.
            arguments: Its arguments.

        Raises:
            InvalidRequest: The id was used for another call.
            EnvportError: The answer was an error.
        """
        if _written(tool, arguments) != _written(*self._call):
            raise InvalidRequest(
                f"The id {self._call_id!r} belongs to the latest call, of {self._call[0]!r}, which had another tool or "
                "other arguments. This call was not played. Send a call again with the same tool and arguments, and "
                "give a new call a new id."
            )
        if isinstance(self._answer, EnvportError):
            raise self._answer.with_traceback(None)
        assert self._answer is not None
        return self._answer

    def recall(self, call_id: str | None, step: StepRecord, answer: CallResult | EnvportError) -> None:
        """Take the answer to a call of before a restart."""
        self._call_id, self._call, self._answer = call_id, (step.tool, step.arguments), answer

    async def keep(
        self, call_id: str, tool: str, arguments: Mapping[str, Any], play: Awaitable[CallResult]
    ) -> CallResult:
        """Await a call, and keep its result or its error."""
        try:
            answer = await play
        except EnvportError as error:
            self._call_id, self._call, self._answer = call_id, (tool, arguments), error
            raise
        self._call_id, self._call, self._answer = call_id, (tool, arguments), answer
        return answer


def _written(tool: str, arguments: Mapping[str, Any]) -> str:
    """A call as text. In Python, `True == 1`, but they are different arguments."""
    try:
        return json.dumps([tool, dict(arguments)], sort_keys=True, default=repr)
    except RecursionError:
        # No tool takes arguments that are nested so deeply, so the answer to all such calls is the same refusal.
        return json.dumps([tool])
