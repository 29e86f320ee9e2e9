"""The seam between the bridge and whatever runs the episodes: this process, or a gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from envport.types import ContentBlock, EnvironmentInfo, Observation, Outcome, TaskPage

__all__ = ["CallReply", "EpisodeSource", "OpenRequest", "RolloutEpisode", "RolloutTarget"]


@dataclass(frozen=True)
class RolloutTarget:
    """Where an environment is, and how the bridge treats it. Picklable, and equal for equal connections.

    Attributes:
        where: URL of the environment on a gateway, or a reference as `envport serve` takes it.
        token: Bearer token for the gateway.
        patience: Seconds to wait for a gateway that is away or full, before an episode is given up.
        keep_alive: Seconds for which an episode that is not called is kept from expiring.
        call_seconds: Seconds after which a call that is not answered counts as lost.
        connections: Connections to the gateway that all episodes share.
    """

    where: str
    token: str | None = field(default=None, repr=False)
    patience: float = 60.0
    keep_alive: float = 4 * 3600.0
    call_seconds: float = 600.0
    connections: int = 64

    @property
    def remote(self) -> bool:
        """Whether a gateway runs the episodes."""
        return "://" in self.where


@dataclass(frozen=True)
class OpenRequest:
    """What an episode is opened with.

    Attributes:
        seed: The seed.
        split: The split of the task.
        task: Index of the task in the split, or a task of the caller's own.
    """

    seed: int | None = None
    split: str | None = None
    task: int | Mapping[str, Any] | None = None


@dataclass(frozen=True)
class RolloutEpisode:
    """An episode that was opened.

    Attributes:
        episode_id: The handle.
        address: Where its calls go: an MCP URL, or the handle again.
        observation: The first observation.
        seed: The seed in use.
    """

    episode_id: str
    address: str
    observation: Observation
    seed: int


@dataclass(frozen=True, slots=True)
class CallReply:
    """What a tool call gave.

    Attributes:
        content: MCP content blocks.
        structured: The same as data, where the environment returned data.
        is_error: The environment, or the gateway on its behalf, refused.
        reward: Reward of the step.
        outcome: How the episode ended, if this call ended it.
    """

    content: Sequence[ContentBlock]
    structured: dict[str, Any] | None = None
    is_error: bool = False
    reward: float | None = None
    outcome: Outcome | None = None


class EpisodeSource(Protocol):
    """Runs episodes of one environment. All methods run on the bridge's own event loop."""

    async def start(self) -> None:
        """Get ready; called once, before anything else."""
        ...

    def expect(self, info: EnvironmentInfo) -> None:
        """Take note of the tools that are going to be called."""
        ...

    async def describe(self) -> EnvironmentInfo:
        """The environment: tools, splits, limits.

        Raises:
            GatewayUnreachable: There was no usable answer.
            UnknownEnvironment: It is not there.
        """
        ...

    async def tasks(self, split: str, offset: int, limit: int) -> TaskPage:
        """A page of the tasks of a split.

        Raises:
            UnknownTask: There is no such split.
        """
        ...

    async def open(self, request: OpenRequest) -> RolloutEpisode:
        """Open an episode.

        Raises:
            AtCapacity: There is no room now.
            GatewayUnreachable: There was no usable answer.
            EpisodeFailed: The environment broke.
            RequestError: The request makes no sense.
        """
        ...

    async def call(self, episode: RolloutEpisode, tool: str, arguments: Mapping[str, Any]) -> CallReply:
        """Call a tool.

        Raises:
            InvalidArguments: The gateway refused the arguments.
            EpisodeOver: The episode has ended.
            UnknownEpisode: The gateway does not have it any more.
            UnknownTool: The environment has no such tool any more.
            EpisodeFailed: The environment broke.
            GatewayUnreachable: There was no usable answer; whether the call was played is not known.
        """
        ...

    async def keep_alive(self, episode: RolloutEpisode) -> None:
        """Say that the episode is still in use."""
        ...

    async def close(self, episode: RolloutEpisode) -> None:
        """Close an episode."""
        ...

    async def stop(self) -> None:
        """Let go of everything."""
        ...
