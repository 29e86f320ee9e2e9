# verifiers is installed in an environment of its own, where the type checker does not look.
# pyright: basic, reportMissingImports=false
"""How verifiers v1 plays a task: an episode for each rollout, closed whatever becomes of it."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import urlsplit, urlunsplit

import verifiers.v1 as vf

from envport import AsyncClient, EnvportError
from envport.blocks import text_of
from envport.errors import EpisodeFailed
from envport.types import EpisodeInfo, Observation, OpenedEpisode
from envport_bridges.verifiers.taskset import EnvportData, EnvportTask, EnvportTaskset

__all__ = ["EnvportEnv", "EnvportEnvConfig"]

logger = logging.getLogger(__name__)


class EnvportEnvConfig(vf.SingleAgentEnvConfig):
    """The one agent that plays: `--env.agent.*`."""


class EnvportEnv(vf.Env[EnvportEnvConfig]):
    """One agent that plays one episode of a gateway. Its tools are the episode's own, at the gateway's address.

    A rollout that fails, is cancelled or runs out of time leaves no episode behind.
    """

    taskset: EnvportTaskset
    _client: AsyncClient | None = None

    async def start(self) -> None:
        """Connect to the gateway, and check that it serves the environment."""
        config = self.taskset.config
        self._client = AsyncClient(config.address.gateway, token=config.token)
        await self._client.environment(config.address.name)

    async def stop(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def run(self, task: EnvportTask, agents: vf.Agents) -> None:
        """Open an episode, and let the agent play it."""
        assert self._client is not None  # `serving` has started it
        config = self.taskset.config
        choice = task.data.choice
        opened = await self._client.open(
            config.address.name,
            split=choice.split,
            task=choice.task,
            seed=choice.seed,
            mint_token=config.token is not None,
        )
        try:
            await agents.agent.run(_played(task, opened, self._client))
        finally:
            # A cancelled rollout closes its episode too.
            await asyncio.shield(self._close(opened.episode_id))

    async def _close(self, episode_id: str) -> None:
        assert self._client is not None
        try:
            await self._client.close_episode(episode_id)
        except EnvportError as error:
            logger.warning("an episode could not be closed, and expires: %s", error)


class _Episode:
    """What became of an episode, asked once."""

    def __init__(self, client: AsyncClient, episode_id: str):
        self._client = client
        self._id = episode_id
        self._ended: asyncio.Task[EpisodeInfo] | None = None

    async def over(self) -> bool:
        return (await self._client.episode(self._id)).outcome is not None

    async def reward(self) -> float:
        info = await self._finished()
        if info.outcome is not None and info.outcome.lost:
            owner = "environment" if info.outcome.fault == "environment" else "infrastructure"
            raise EpisodeFailed(f"the episode was lost: {info.outcome.message}", owner)
        return info.reward or 0.0

    async def steps(self) -> int:
        return (await self._finished()).steps

    async def _finished(self) -> EpisodeInfo:
        if self._ended is None:
            self._ended = asyncio.ensure_future(self._client.finish(self._id))
        return await asyncio.shield(self._ended)


def _played(task: EnvportTask, opened: OpenedEpisode, client: AsyncClient) -> EnvportTask:
    data: EnvportData = task.data.model_copy(update={"prompt": _messages(opened.prompt, opened.observation)})
    tools = vf.ToolsetConfig(url=_with_token(opened.mcp_url, opened.token))
    config = task.config.model_copy(update={"tools": tools})
    return EnvportTask(data, config, _Episode(client, opened.episode_id))


def _with_token(url: str, token: str | None) -> str:
    """A harness is told of tools by their URL alone, so that the token, which can only play this episode, is in it."""
    if token is None:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"episode:{token}@{parts.netloc}"))


def _messages(prompt: str, observation: Observation) -> list[vf.Message]:
    """What the agent is told: the prompt and the first observation."""
    parts: list[dict[str, object]] = [{"type": "text", "text": prompt}] if prompt else []
    for block in observation.content:
        if block.get("type") == "image":
            url = f"data:{block['mimeType']};base64,{block['data']}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
        else:
            parts.append({"type": "text", "text": text_of(block)})
    if all(part["type"] == "text" for part in parts):
        return [vf.UserMessage(content="\n\n".join(str(part["text"]) for part in parts))]
    return [vf.UserMessage.model_validate({"content": parts})]
