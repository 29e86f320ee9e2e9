"""The seam between the surfaces and the episodes, which may run here or on other machines."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from envport.episodes.limits import Limits
from envport.episodes.play import CallResult
from envport.episodes.readiness import Preparation
from envport.registry import EnvironmentDefinition
from envport.runtimes import ProgressSink
from envport.types import EpisodeInfo, Observation, Task, Trajectory

__all__ = ["ChosenTask", "EpisodeTable", "Found", "Opening"]

ChosenTask = int | Task | Mapping[str, Any]
"""Index of a task in its split, or a task of the caller's own."""


@dataclass(frozen=True, slots=True)
class Found:
    """An episode that a principal may play.

    Attributes:
        handle: The id as clients hold it.
        principal: Who it belongs to.
        spec: The environment.
    """

    handle: str
    principal: str
    spec: EnvironmentDefinition


@dataclass(frozen=True, slots=True)
class Opening:
    """What an episode begins with.

    Attributes:
        handle: The id as clients hold it.
        spec: The environment.
        prompt: What the player is told to do.
        observation: The first observation.
        seed: The seed in use.
    """

    handle: str
    spec: EnvironmentDefinition
    prompt: str
    observation: Observation
    seed: int


class EpisodeTable(Protocol):
    """Every episode of a gateway, by handle. All methods raise `UnknownEpisode` for what is not the principal's."""

    @property
    def environments(self) -> Mapping[str, EnvironmentDefinition]:
        """What can be played."""
        ...

    @property
    def limits(self) -> Limits:
        """Limits on episodes."""
        ...

    @property
    def replicated(self) -> bool:
        """Whether other gateways serve the same episodes."""
        ...

    @property
    def live(self) -> int:
        """How many episodes hold resources."""
        ...

    @property
    def draining(self) -> bool:
        """Whether new episodes are no longer taken here."""
        ...

    @property
    def preparations(self) -> Mapping[str, Preparation]:
        """How far the preparing of each environment is, by its name."""
        ...

    def take_no_more(self) -> None:
        """Refuse new episodes from now on, also those for which a request waits; the others are played on."""
        ...

    async def drain(self, seconds: float) -> None:
        """Refuse new episodes, and do not end before those that would be lost with this gateway have ended.

        Args:
            seconds: After so long they are ended.
        """
        ...

    def run(self) -> AbstractAsyncContextManager[None]:
        """Run what has to run beside the requests."""
        ...

    def environment(self, name: str) -> EnvironmentDefinition:
        """The environment of that name.

        Raises:
            UnknownEnvironment: It is not served.
        """
        ...

    async def open(
        self,
        environment: str,
        *,
        principal: str,
        split: str | None = None,
        task: ChosenTask | None = None,
        seed: int | None = None,
        reward_in_meta: bool = False,
    ) -> Opening:
        """Open an episode and reset its environment.

        Args:
            environment: Name of the environment.
            principal: Who the episode belongs to.
            split: The split to take the task from; the first one if not given.
            task: The task. If the environment has tasks and none is chosen, the seed chooses.
            seed: The seed; a random one is drawn if not given.
            reward_in_meta: Whether MCP results carry the reward in `_meta`.

        Raises:
            UnknownEnvironment: The environment is not served.
            UnknownTask: It has no such split or task.
            InvalidRequest: The seed or the task is malformed.
            AtCapacity: There was no room in time.
            Draining: New episodes are no longer taken here.
            EpisodeFailed: The environment broke.
        """
        ...

    def find(self, handle: str, principal: str) -> Found:
        """The episode of that handle, for playing it."""
        ...

    async def opening(self, found: Found) -> Opening:
        """What the episode began with."""
        ...

    async def call(
        self,
        found: Found,
        tool: str,
        arguments: Mapping[str, Any],
        progress: ProgressSink | None = None,
        call_id: str | None = None,
    ) -> CallResult:
        """Call a tool, after the calls that came before.

        Args:
            found: The episode.
            tool: Name of the tool.
            arguments: The arguments as parsed JSON.
            progress: Where the tool's progress goes.
            call_id: Names the call, so that whoever missed the answer can ask for it again: the latest call of an
                episode is played once, however often it is sent.

        Raises:
            UnknownTool: There is no such tool.
            EpisodeOver: It has ended.
            InvalidArguments: The arguments break the schema; the environment was not touched.
            EpisodeFailed: The environment broke; the episode has ended as failed.
        """
        ...

    async def info(self, handle: str, principal: str) -> EpisodeInfo:
        """The state of an episode: of closed and expired ones too, while they are remembered."""
        ...

    async def keep_alive(self, found: Found) -> EpisodeInfo:
        """Start the idle limit of an episode anew."""
        ...

    async def reset(
        self,
        found: Found,
        *,
        split: str | None = None,
        task: ChosenTask | None = None,
        seed: int | None = None,
    ) -> Opening:
        """Start an episode over: with the same task and seed, unless others are given.

        Raises:
            UnknownTask: There is no such split or task.
            AtCapacity: It had ended, and there is no room for another live one.
            Draining: It had ended, and new episodes are no longer taken here.
            EpisodeFailed: The environment broke.
        """
        ...

    async def close(self, handle: str, principal: str) -> EpisodeInfo:
        """Close an episode now, and free its environment as soon as no call is running in it."""
        ...

    async def trajectory(self, handle: str, principal: str) -> Trajectory:
        """What happened in an episode."""
        ...
