"""Requests for an episode, and what they come to: a task and a seed of the environment."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from random import Random
from types import NoneType
from typing import NamedTuple, TypeVar

import anyio
import anyio.to_thread
from pydantic import ValidationError

from envport.definition import EnvironmentDefinition
from envport.entropy import random_bits
from envport.errors import EpisodeFailed, InvalidEnvironment, InvalidRequest, UpstreamLost
from envport.tools.toolset import Toolset
from envport.types import Choice, Task

__all__ = ["MAX_LABEL", "MAX_LABELS", "EpisodeStart", "OpenRequest", "reading", "resolve", "resolve_reset"]

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

MAX_LABELS = 16
"""The most labels of an episode."""

MAX_LABEL = 128
"""The most characters of a label."""

_MAX_SECRETS = 32
_MAX_SECRET = 16_384
_LARGEST_SEED = 2**63 - 1
_ANY = Choice()
_NONE: Mapping[str, str] = {}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
# Thousands of ended episodes are remembered, and a request may bring a task of megabytes.
_KEPT_TASK_BYTES = 16 * 2**10


class OpenRequest(NamedTuple):
    """A request to open an episode.

    Attributes:
        environment: Name of the environment.
        principal: Name of the principal that will own the episode.
        choice: Split, task and seed.
        reward_in_meta: Whether MCP results carry the reward in `_meta`.
        wait: Whether to wait for a free place.
        labels: Labels of the episode by name. Never shown to the player.
        secrets: Secrets for the environment by name, in addition to those that it is served with.
    """

    environment: str
    principal: str
    choice: Choice = _ANY
    reward_in_meta: bool = False
    wait: bool = True
    labels: Mapping[str, str] = _NONE
    secrets: Mapping[str, str] = _NONE

    def __repr__(self) -> str:
        """Everything but the secrets."""
        shown = (f"{name}={getattr(self, name)!r}" for name in self._fields if name != "secrets")
        return f"OpenRequest({', '.join(shown)})"

    def checked(self, spec: EnvironmentDefinition) -> OpenRequest:
        """The request with the environment's own secrets, after a check of its labels and secrets.

        Raises:
            InvalidRequest: A label or secret is malformed, or there are too many. The message contains no secret.
        """
        if not (self.labels or self.secrets or spec.secrets):
            return self
        _check_names("label", self.labels, MAX_LABELS, MAX_LABEL)
        _check_names("secret", self.secrets, _MAX_SECRETS, _MAX_SECRET)
        for name, value in self.labels.items():
            if not value.isprintable():
                raise InvalidRequest(f"label {name!r} is {value!r}; it has to be printable")
        return self._replace(secrets={**spec.secrets, **self.secrets}) if spec.secrets else self


class EpisodeStart(NamedTuple):
    """What an episode starts from.

    Attributes:
        seed: The seed given to `reset`.
        split: The split of the task.
        task: The task.
        task_index: Index of the task in its split, if it was chosen by index.
        tools: The tools of the task.
        shortened: Whether only the id of the task is kept here.
    """

    seed: int
    tools: Toolset
    split: str | None = None
    task: Task | None = None
    task_index: int | None = None
    shortened: bool = False

    def kept(self) -> EpisodeStart:
        """What is kept of it after the end of its episode: of a task that can be read again or is large, the id."""
        task = self.task
        if task is None or (self.task_index is None and len(task.model_dump_json()) <= _KEPT_TASK_BYTES):
            return self
        return self._replace(task=Task(id=task.id), shortened=True)

    def known(self, spec: EnvironmentDefinition) -> EpisodeStart:
        """The same with the whole task, if it came from a split."""
        if not self.shortened or self.split is None or self.task_index is None:
            return self
        return self._replace(task=spec.task(self.split, self.task_index), shortened=False)


def _check_names(what: str, given: Mapping[str, str], most: int, longest: int) -> None:
    if len(given) > most:
        raise InvalidRequest(f"{len(given)} {what}s are given; allowed: at most {most}")
    for name, value in given.items():
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                f"{name[:80]!r} cannot name a {what}: use letters, digits, '.', '_' and '-', at most 64 of them, and "
                "a letter or '_' first"
            )
        if type(value) is not str or not 1 <= len(value) <= longest:
            raise InvalidRequest(f"{what} {name!r} has to be text of 1 to {longest} characters")


async def reading(spec: EnvironmentDefinition, work: Callable[[], ResultT]) -> ResultT:
    """The result of work that reads tasks of an environment. In a thread, if tasks come from another system.

    Args:
        spec: The environment.
        work: The work.

    Raises:
        EpisodeFailed: The other system has failed.
    """
    if not spec.cls.remote_tasks:
        return work()
    try:
        # With a limiter of its own: a system that hangs must not keep other work from its threads.
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
    except UpstreamLost as lost:
        logger.error("environment %s: a task could not be read", spec.name, exc_info=lost)
        raise EpisodeFailed(
            "The task could not be read, because what the environment stands on has failed. This is a fault of the "
            "infrastructure, not of your call. Try again.",
            "infrastructure",
            "upstream",
        ) from None


def resolve(spec: EnvironmentDefinition, choice: Choice) -> EpisodeStart:
    """Find the task of a choice, and draw what it leaves open.

    Raises:
        UnknownTask: There is no such split or task.
        InvalidRequest: The seed or the task is malformed, or the environment refuses the task.
        EpisodeFailed: The environment cannot tell the tools of the task.
    """
    split, task = choice.split, choice.task
    seed = random_bits(31) if choice.seed is None else _checked(choice.seed)
    if isinstance(task, Task):
        return _start(spec, seed, split, task)
    if isinstance(task, Mapping):
        try:
            chosen = Task.model_validate(dict(task))
        except ValidationError as error:
            raise InvalidRequest(f"task is malformed: {error.errors(include_url=False)[0]['msg']}") from None
        return _start(spec, seed, split, chosen)
    if type(task) not in (int, NoneType):
        raise InvalidRequest("task has to be an index into the split, or a task with an id")
    split = split if split is not None else spec.default_split
    if split is None:
        if task is not None:
            raise InvalidRequest(f"environment {spec.name!r} has no tasks, so no task can be chosen by index")
        return _start(spec, seed)
    # A split without tasks has no index to draw; `spec.task` then says so.
    index = Random(seed).randrange(spec.num_tasks(split) or 1) if task is None else task
    return _start(spec, seed, split, spec.task(split, index), index)


def _start(
    spec: EnvironmentDefinition,
    seed: int,
    split: str | None = None,
    task: Task | None = None,
    task_index: int | None = None,
) -> EpisodeStart:
    try:
        return EpisodeStart(seed, spec.toolset_for(task), split, task, task_index)
    except InvalidEnvironment as error:
        # A player may read the error, so the environment's internals go to the log only.
        logger.error("environment %s: %s", spec.name, error, exc_info=error.__cause__)
        raise EpisodeFailed(
            "The environment could not tell the tools of this task. This is a fault of the environment, not of your "
            "call. Start an episode with another task."
        ) from None


def resolve_reset(spec: EnvironmentDefinition, before: EpisodeStart, choice: Choice) -> EpisodeStart:
    """What an episode starts from after a reset: as before, except for what is chosen.

    Raises:
        UnknownTask: There is no such split or task.
        InvalidRequest: The seed or the task is malformed, the environment refuses the task, or the task of the ended
            episode is no longer kept.
        EpisodeFailed: The environment cannot tell the tools of the task.
    """
    seed = before.seed if choice.seed is None else choice.seed
    if choice.task is None and choice.split is None:
        before = before.known(spec)
        if before.shortened:
            raise InvalidRequest(
                f"A task of more than {_KEPT_TASK_BYTES // 2**10} KiB is not kept after the end of its episode: give "
                "the task again"
            )
        return before._replace(seed=_checked(seed))
    return resolve(spec, Choice(choice.split or before.split, choice.task, seed))


def _checked(seed: int) -> int:
    if type(seed) is not int or not 0 <= seed <= _LARGEST_SEED:
        raise InvalidRequest(f"seed is {seed!r}; it has to be an integer from 0 to {_LARGEST_SEED}")
    return seed
