"""The interface between the bridge and what runs the episodes: this process, or a gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from envport.blocks import ContentBlock
from envport.references import is_address
from envport.types import Choice, EnvironmentInfo, EpisodeInfo, LegalCall, Observation, Outcome, TaskPage

__all__ = ["CallReply", "EpisodeSource", "RolloutEpisode", "RolloutTarget"]


@dataclass(frozen=True)
class RolloutTarget:
    """Where an environment is, and how the bridge treats it. Picklable; targets with the same fields are equal.

    Attributes:
        where: URL of the environment on a gateway, or a reference as for `envport serve`.
        token: Bearer token for the gateway.
        patience: Seconds to wait for a gateway that is unreachable or full, before giving up on an episode.
        keep_alive: Seconds for which an episode without calls is kept from expiring.
        call_seconds: Seconds after which an unanswered call counts as lost.
        connections: HTTP connections to the gateway that all episodes share. The rollout channel is one connection.
        labels: Labels of every episode, as pairs of name and value. `run`, `group` and `sample` are set unless given:
            this process, the task and seed, and which of its episodes it is.
        secrets: Secrets for the environment, as pairs of name and value.
        score: Function that scores final states (`package.module:function`), for an environment in this process. A
            gateway has its own: `envport serve --score`.
        options: Options of an environment in this process, as a JSON object; empty if they are in the reference.
        channel: Whether to play over the gateway's rollout channel, if there is one, and not over HTTP.
        mint_tokens: Whether somebody else plays the episodes, such as an agent's program: each has a token that can
            only play it, and what its calls answer holds no reward. Needs a gateway.
    """

    where: str
    token: str | None = field(default=None, repr=False)
    patience: float = 60.0
    keep_alive: float = 4 * 3600.0
    call_seconds: float = 600.0
    connections: int = 64
    labels: tuple[tuple[str, str], ...] = ()
    secrets: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    score: str | None = None
    options: str = ""
    channel: bool = True
    mint_tokens: bool = False

    @property
    def remote(self) -> bool:
        """Whether a gateway runs the episodes."""
        return is_address(self.where)


@dataclass(frozen=True)
class RolloutEpisode:
    """An open episode.

    Attributes:
        episode_id: The handle.
        address: Where its calls go: an MCP URL at a gateway, or the handle in this process.
        prompt: What the player is told to do.
        observation: The first observation.
        seed: The seed in use.
        fingerprint: Fingerprint of its tool listing.
        tools: Its tools, as MCP lists them, if tasks have tools of their own. Otherwise `None`: they are those of the
            environment.
        token: A bearer token that can only play it, if the target asks for tokens. Whoever has it plays at `address`.
    """

    episode_id: str
    address: str
    prompt: str
    observation: Observation
    seed: int
    fingerprint: str
    tools: list[dict[str, Any]] | None = None
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class CallReply:
    """The result of a tool call.

    Attributes:
        content: MCP content blocks.
        structured: The same as data, if the environment returned data.
        is_error: The environment, or the gateway on its behalf, refused the call.
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
        """Prepare. Called once, before any other method."""
        ...

    def expect(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Prepare for calls of tools, as MCP lists them."""
        ...

    async def describe(self) -> EnvironmentInfo:
        """The environment: tools, splits, limits.

        Raises:
            GatewayUnreachable: There was no usable answer.
            UnknownEnvironment: There is no such environment.
        """
        ...

    async def tasks(self, split: str, offset: int, limit: int) -> TaskPage:
        """A page of the tasks of a split.

        Raises:
            UnknownTask: There is no such split.
        """
        ...

    async def open(self, choice: Choice, labels: Mapping[str, str], name: str) -> RolloutEpisode:
        """Open an episode with labels.

        Args:
            choice: Its task and seed.
            labels: Its labels.
            name: Name of the opening: one that is sent again, because its answer was lost, opens no second episode.

        Raises:
            AtCapacity: There is no free capacity now.
            GatewayUnreachable: There was no usable answer.
            EpisodeFailed: The environment failed.
            RequestError: The request is not valid.
        """
        ...

    async def fork(self, episode: RolloutEpisode, step: int | None) -> RolloutEpisode:
        """Open a copy of an episode, which begins with so many of its calls, or with all of them.

        Raises:
            InvalidRequest: There are fewer calls, or the episode cannot be copied there.
            AtCapacity: There is no free capacity now.
            GatewayUnreachable: There was no usable answer.
            EpisodeFailed: The environment failed.
        """
        ...

    async def call(self, episode: RolloutEpisode, tool: str, arguments: Mapping[str, Any]) -> CallReply:
        """Call a tool.

        Raises:
            InvalidArguments: The gateway refused the arguments.
            EpisodeOver: The episode has ended.
            UnknownEpisode: The gateway no longer has the episode.
            UnknownTool: The environment no longer has this tool.
            EpisodeFailed: The environment failed.
            GatewayUnreachable: There was no usable answer; it is not known whether the call was executed.
        """
        ...

    async def legal_calls(self, episode: RolloutEpisode) -> list[LegalCall] | None:
        """The calls that make sense now; `None` if the environment does not say.

        Raises:
            EpisodeOver: The episode has ended.
            UnknownEpisode: The gateway no longer has the episode.
            EpisodeFailed: The environment failed.
            GatewayUnreachable: There was no usable answer.
        """
        ...

    async def keep_alive(self, episode: RolloutEpisode) -> None:
        """Tell the gateway that the episode is still in use."""
        ...

    async def finish(self, episode: RolloutEpisode) -> EpisodeInfo:
        """End an episode, if it has not ended, and wait for its reward.

        Raises:
            UnknownEpisode: The gateway no longer has the episode.
            GatewayUnreachable: There was no usable answer.
        """
        ...

    async def close(self, episode: RolloutEpisode) -> None:
        """Close an episode."""
        ...

    async def stop(self) -> None:
        """Release all resources."""
        ...
