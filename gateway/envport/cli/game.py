"""An episode for a person to play: in this process, or at a gateway."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import mcp
from mcp import MCPError

from envport.access import ANYONE
from envport.cli.probe import mcp_client
from envport.client import AsyncClient
from envport.definition import EnvironmentDefinition
from envport.episodes import Episode, Episodes, OpenRequest
from envport.errors import (
    EpisodeFailed,
    EpisodeOver,
    GatewayUnreachable,
    InvalidArguments,
    UnknownEpisode,
    error_from_code,
)
from envport.tools.content import text_observation
from envport.types import Choice, EpisodeInfo, Observation, OpenedEpisode

__all__ = ["PlayedCall", "TerminalGame", "at_gateway", "in_process"]


@dataclass(frozen=True)
class PlayedCall:
    """The result of a call.

    Attributes:
        observation: What the player sees.
        is_error: The tool refused, with a message for the player.
        misunderstood: The arguments do not match the tool's schema: ask again.
        over: The episode has ended.
    """

    observation: Observation
    is_error: bool = False
    misunderstood: bool = False
    over: bool = False


class TerminalGame(Protocol):
    """One episode."""

    @property
    def prompt(self) -> str:
        """The task's prompt."""
        ...

    @property
    def observation(self) -> Observation:
        """The first observation."""
        ...

    @property
    def seed(self) -> int:
        """The seed in use."""
        ...

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools, as MCP lists them."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> PlayedCall:
        """Call a tool.

        Raises:
            EpisodeFailed: The environment failed.
            UnknownEpisode: The episode is gone.
        """
        ...

    async def finish(self) -> EpisodeInfo:
        """End the episode, if it has not ended, and return its state once its reward is known."""
        ...


@asynccontextmanager
async def in_process(spec: EnvironmentDefinition, choice: Choice) -> AsyncGenerator[TerminalGame]:
    """An episode in this process."""
    episodes = Episodes({spec.name: spec})
    async with episodes.run():
        yield _LocalGame(await episodes.open_episode(OpenRequest(spec.name, ANYONE.name, choice)))


@asynccontextmanager
async def at_gateway(url: str, name: str, choice: Choice, token: str | None) -> AsyncGenerator[TerminalGame]:
    """An episode at a gateway: opened over HTTP, played over MCP, and closed at the end."""
    async with AsyncClient(url, token=token) as client:
        # The user's token may be allowed to open episodes but not to play them.
        opened = await client.open(
            name, split=choice.split, task=choice.task, seed=choice.seed, mint_token=token is not None
        )
        try:
            async with mcp_client(opened.mcp_url, opened.token) as player:
                listed = await player.list_tools()
                tools = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools]
                yield _RemoteGame(client, opened, player, tools)
        finally:
            await client.close_episode(opened.episode_id)


class _LocalGame:
    def __init__(self, episode: Episode):
        self._episode = episode
        self.prompt = episode.prompt
        self.observation = episode.first_observation
        self.seed = episode.start.seed
        self.tools = episode.start.tools.listing

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> PlayedCall:
        try:
            result = await self._episode.call(tool, arguments)
        except InvalidArguments as error:
            return PlayedCall(text_observation(str(error)), is_error=True, misunderstood=True)
        return PlayedCall(result.observation, result.is_error, over=result.outcome is not None)

    async def finish(self) -> EpisodeInfo:
        await self._episode.finish()
        return self._episode.info()


# Errors that end the game. After any other refusal the player can go on.
_FINAL = {cls.code: cls for cls in (EpisodeFailed, EpisodeOver, UnknownEpisode)}


class _RemoteGame:
    def __init__(self, client: AsyncClient, opened: OpenedEpisode, player: mcp.Client, tools: list[dict[str, Any]]):
        self._client = client
        self._player = player
        self._episode_id = opened.episode_id
        self.prompt = opened.prompt
        self.observation = opened.observation
        self.seed = opened.seed
        self.tools = tools

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> PlayedCall:
        try:
            result = await self._player.call_tool(tool, dict(arguments))
        except MCPError as error:
            raise GatewayUnreachable(f"the gateway did not carry out the call: {error}") from error
        meta: Mapping[str, Any] = result.meta or {}
        blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
        observation = Observation(content=tuple(blocks))
        code = meta.get("envport/error")
        if code in _FINAL:
            raise error_from_code(code, observation.text)
        return PlayedCall(
            observation,
            is_error=bool(result.is_error),
            misunderstood=code == InvalidArguments.code,
            over="envport/outcome" in meta,
        )

    async def finish(self) -> EpisodeInfo:
        return await self._client.finish(self._episode_id)
