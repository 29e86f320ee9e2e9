"""The calls that an episode begins with: those of before a restart, or of the episode that it was forked from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envport.definition import EnvironmentDefinition
from envport.errors import EnvportError, InvalidArguments, ToolError
from envport.runtimes import StepResult, Worker
from envport.tools.content import observe, text_observation
from envport.trajectories import Provenance, ResumePoint, recorded_form
from envport.types import Observation, Outcome, StepRecord

__all__ = [
    "NotPutBack",
    "Past",
    "not_put_back",
    "origin_of",
    "play_again",
    "said",
    "why_not_again",
    "why_not_resumed",
]


class NotPutBack(Exception):
    """An episode cannot be put back. The message is for people to read, and says why."""


@dataclass(frozen=True, slots=True)
class Past:
    """What an episode was before.

    Attributes:
        first_observation: The first observation.
        steps: The calls, oldest first.
        created_at: When it was opened, as Unix time in seconds.
        resets: How often it was reset.
        point: The snapshot of its environment, and the id of the latest call, as far as they are known.
        seconds: How long it has been played.
        forked_from: Handle of the episode that these calls were played in; `None` if it was this one.
    """

    first_observation: Observation
    steps: Sequence[StepRecord]
    created_at: float
    resets: int = 0
    point: ResumePoint | None = None
    seconds: float = 0.0
    forked_from: str | None = None

    @property
    def snapshot(self) -> tuple[int, bytes] | None:
        """The index of the call after which the environment was copied, and the copy."""
        point = self.point
        if point is None or point.snapshot is None or point.snapshot_index is None:
            return None
        return (point.snapshot_index, point.snapshot) if point.snapshot_index <= len(self.steps) else None

    @property
    def ended(self) -> bool:
        """Whether the last call ended the episode."""
        return bool(self.steps) and (self.steps[-1].terminated or self.steps[-1].truncated)


def origin_of(spec: EnvironmentDefinition, *, with_secrets: bool = False) -> Provenance:
    """What an episode of this environment is made of.

    Args:
        spec: The environment.
        with_secrets: Whether the episode has secrets of its own.
    """
    return Provenance(spec.source_fingerprint, spec.options_fingerprint, with_secrets)


def why_not_resumed(spec: EnvironmentDefinition, origin: Provenance) -> str | None:
    """Why an episode cannot go on after a restart; `None` if it can, as far as is known before.

    Args:
        spec: The environment.
        origin: What the episode was made of.
    """
    if origin.with_secrets:
        return "it was opened with secrets, which are not stored"
    return None if spec.has_snapshots or spec.deterministic else why_not_again(spec)


def not_put_back(why: Exception | str, *, forked: bool) -> Outcome:
    """The outcome of an episode that cannot be put back.

    Args:
        why: Why not.
        forked: Whether it was to be a copy of another episode.
    """
    if forked:
        message = f"The copy could not be made: {why}."
        return Outcome(status="failed", reason="environment_error", message=message, fault="environment")
    message = f"Its gateway was stopped, and it cannot go on: {why}."
    return Outcome(status="failed", reason="shutdown", message=message, fault="infrastructure")


def said(refused: EnvportError) -> StepResult:
    """The refusal of a call as the result that the player gets."""
    words = text_observation(str(refused))
    # The runtime has made it an observation.
    more = refused.content if isinstance(refused, ToolError) else None
    return StepResult(observe([words, more]) if more is not None else words)


async def play_again(
    spec: EnvironmentDefinition, worker: Worker, first_observation: Observation, past: Past
) -> StepResult | None:
    """Put the state of an environment back, which was reset with the same task and seed.

    Args:
        spec: The environment.
        worker: Runs it.
        first_observation: What the player would see first.
        past: What it was before.

    Returns:
        The result of the last call, if that was played again.

    Raises:
        NotPutBack: It gave something else than before, or it can neither copy its state nor play calls again.
        Exception: The environment failed.
    """
    _check_complete(past)
    played = 0
    if past.snapshot is not None:
        played, snapshot = past.snapshot
        await worker.restore(snapshot)
    elif not spec.deterministic:
        raise NotPutBack(why_not_again(spec))
    elif _seen(first_observation) != _seen(past.first_observation):
        raise NotPutBack("reset() gave another first observation than before")
    result: StepResult | None = None
    for step in past.steps[played:]:
        # Such a call did not reach the environment.
        result = await _play(worker, step) if step.error != InvalidArguments.code else None
    return result


def why_not_again(spec: EnvironmentDefinition) -> str:
    """Why the calls of an environment cannot be played again."""
    if spec.has_snapshots:
        return f"there is no snapshot of it, and its environment {spec.name!r} does not declare deterministic = True"
    return (
        f"its environment {spec.name!r} has neither snapshot() and restore(), nor does it declare deterministic = True"
    )


def _check_complete(past: Past) -> None:
    for number, step in enumerate(past.steps, 1):
        if step.index != number:
            raise NotPutBack(f"call {number} is not kept any more")
        if step.error not in (None, InvalidArguments.code, ToolError.code):
            raise NotPutBack(f"call {number} ({step.tool}) has no answer that could be compared: {step.error}")


async def _play(worker: Worker, step: StepRecord) -> StepResult:
    error: str | None = None
    try:
        result = await worker.call(step.tool, step.arguments, None)
    except (ToolError, InvalidArguments) as refused:
        error, result = refused.code, said(refused)
    what = _difference(step, result, error)
    if what is not None:
        raise NotPutBack(f"call {step.index} ({step.tool}) gave {what} than before, when it was played again")
    return result


def _difference(step: StepRecord, result: StepResult, error: str | None) -> str | None:
    """What differs from the recorded step; `None` if nothing does."""
    if error != step.error:
        return "another kind of answer"
    if result.reward != step.reward:
        return "another reward"
    if result.terminated != step.terminated:
        return "another end"
    # If a limit of the gateway truncated the episode, the recorded observation also has the gateway's words about it.
    cut_off = step.truncated and not result.truncated
    if result.truncated and not step.truncated:
        return "another end"
    return "another observation" if not cut_off and _seen(result.observation) != _seen(step.observation) else None


def _seen(observation: Observation) -> Observation:
    return recorded_form(StepRecord(index=0, tool="", arguments={}, observation=observation)).observation
