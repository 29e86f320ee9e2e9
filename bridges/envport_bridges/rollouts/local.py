"""Episodes in this process, without a server. It calls the gateway's own table of episodes directly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from envport.episodes import Episodes, Found, Limits, Opening, OpenRequest, environment_info, task_page
from envport.errors import ConfigurationError, UnknownTask
from envport.registry import EnvironmentDefinition, load
from envport.types import Choice, EnvironmentInfo, EpisodeInfo, LegalCall, TaskPage
from envport_bridges.rollouts.backend import CallReply, RolloutEpisode, RolloutTarget

__all__ = ["LocalEpisodes"]

_PRINCIPAL = "trainer"
# Practically no limits: only the bridge uses these episodes, and it closes them itself.
_LIMITS = Limits(max_episodes=1_000_000, idle_seconds=30 * 24 * 3600.0, max_ended=1_000)


class LocalEpisodes:
    """An `EpisodeSource` in this process.

    Args:
        target: The target with the environment's reference.

    Raises:
        ConfigurationError: The target asks for tokens.
    """

    def __init__(self, target: RolloutTarget):
        if target.mint_tokens:
            raise ConfigurationError(
                f"episodes of {target.where!r} run in this process, where nobody else can play them: tokens need a "
                "gateway (envport serve, and its address http://HOST:PORT/environments/NAME)"
            )
        self._spec: EnvironmentDefinition = load(
            target.where, score=target.score, options=json.loads(target.options) if target.options else None
        )
        self._episodes = Episodes({self._spec.name: self._spec}, _LIMITS)
        self._secrets = dict(target.secrets)
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the table of episodes."""
        started = asyncio.Event()
        self._running = asyncio.create_task(self._run(started))
        await started.wait()

    async def _run(self, started: asyncio.Event) -> None:
        async with self._episodes.run():
            started.set()
            await self._stopping.wait()

    def expect(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Do nothing: the tools are already known here."""

    async def describe(self) -> EnvironmentInfo:
        """The environment: tools, splits, limits."""
        return environment_info(self._spec, _LIMITS)

    async def tasks(self, split: str, offset: int, limit: int) -> TaskPage:
        """A page of the tasks of a split."""
        return await task_page(self._spec, split, offset, limit)

    async def open(self, choice: Choice, labels: Mapping[str, str], name: str) -> RolloutEpisode:
        """Open an episode."""
        if isinstance(choice.task, int) and choice.split is None and self._spec.default_split is None:
            raise UnknownTask(f"environment {self._spec.name!r} has no tasks")
        asked = OpenRequest(
            self._spec.name, _PRINCIPAL, choice, reward_in_meta=True, labels=labels, secrets=self._secrets
        )
        return _rollout(await self._episodes.open(asked))

    async def fork(self, episode: RolloutEpisode, step: int | None) -> RolloutEpisode:
        """Open a copy of an episode."""
        return _rollout(await self._episodes.fork(episode.episode_id, _PRINCIPAL, step))

    async def call(self, episode: RolloutEpisode, tool: str, arguments: Mapping[str, Any]) -> CallReply:
        """Call a tool."""
        result = await self._episodes.call(self._found(episode), tool, arguments)
        return CallReply(
            content=result.observation.content,
            structured=result.observation.structured_content,
            is_error=result.is_error,
            reward=result.reward,
            outcome=result.outcome,
        )

    async def legal_calls(self, episode: RolloutEpisode) -> list[LegalCall] | None:
        """The calls that make sense now."""
        return await self._episodes.legal_calls(self._found(episode))

    async def keep_alive(self, episode: RolloutEpisode) -> None:
        """Do nothing: these episodes do not expire."""

    async def finish(self, episode: RolloutEpisode) -> EpisodeInfo:
        """End an episode, and wait for its reward."""
        return await self._episodes.finish(episode.episode_id, _PRINCIPAL)

    async def close(self, episode: RolloutEpisode) -> None:
        """Close an episode."""
        await self._episodes.close(episode.episode_id, _PRINCIPAL)

    async def stop(self) -> None:
        """Close every episode."""
        self._stopping.set()
        if self._running is not None:
            await self._running

    def _found(self, episode: RolloutEpisode) -> Found:
        return self._episodes.find(episode.episode_id, _PRINCIPAL)


def _rollout(opened: Opening) -> RolloutEpisode:
    return RolloutEpisode(
        episode_id=opened.handle,
        address=opened.handle,
        prompt=opened.prompt,
        observation=opened.observation,
        seed=opened.seed,
        fingerprint=opened.tools.fingerprint,
        tools=opened.tools.listing if opened.spec.tools_vary else None,
    )
