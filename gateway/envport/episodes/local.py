"""The table of the episodes that run on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from envport.episodes.base import ChosenTask, Found, Opening
from envport.episodes.episode import Episode
from envport.episodes.limits import Limits
from envport.episodes.play import CallResult
from envport.episodes.readiness import Preparation
from envport.episodes.table import Episodes
from envport.registry import EnvironmentDefinition
from envport.runtimes import ProgressSink
from envport.types import EpisodeInfo, Trajectory

__all__ = ["LocalTable"]


class LocalTable:
    """An `EpisodeTable` of episodes that run in this process or in its child processes.

    Args:
        episodes: The episodes.
    """

    def __init__(self, episodes: Episodes):
        self._episodes = episodes

    @property
    def environments(self) -> Mapping[str, EnvironmentDefinition]:
        """The environments that are served, by name."""
        return self._episodes.environments

    @property
    def limits(self) -> Limits:
        """Limits on episodes."""
        return self._episodes.limits

    @property
    def replicated(self) -> bool:
        """Always false: no other gateway can reach these episodes."""
        return False

    @property
    def live(self) -> int:
        """How many episodes hold resources."""
        return self._episodes.live

    @property
    def draining(self) -> bool:
        """Whether new episodes are refused."""
        return self._episodes.draining

    @property
    def preparations(self) -> Mapping[str, Preparation]:
        """The preparation status of each environment, by name."""
        return self._episodes.readiness.preparations

    def take_no_more(self) -> None:
        """Refuse new episodes from now on."""
        self._episodes.take_no_more()

    async def drain(self, seconds: float) -> None:
        """Refuse new episodes, and wait until the open ones have ended. After `seconds`, end the rest."""
        await self._episodes.drain(seconds)

    def run(self) -> AbstractAsyncContextManager[None]:
        """Run the reaper, and close every episode at the end."""
        return self._episodes.run()

    def environment(self, name: str) -> EnvironmentDefinition:
        """The environment of that name."""
        return self._episodes.environment(name)

    async def open(
        self,
        environment: str,
        *,
        principal: str,
        split: str | None = None,
        task: ChosenTask | None = None,
        seed: int | None = None,
        reward_in_meta: bool = False,
        wait: bool = True,
    ) -> Opening:
        """Open an episode and reset its environment; `wait` says whether to wait for room."""
        episode = await self._episodes.open(
            environment,
            principal=principal,
            split=split,
            task=task,
            seed=seed,
            reward_in_meta=reward_in_meta,
            wait=wait,
        )
        return _opening(episode)

    def find(self, handle: str, principal: str) -> Found:
        """Find an episode by its handle, to play it."""
        return Found(handle, principal, self._episodes.find(handle, principal).spec)

    async def opening(self, found: Found) -> Opening:
        """The prompt, first observation and seed of the episode."""
        return _opening(self._find(found))

    async def call(
        self,
        found: Found,
        tool: str,
        arguments: Mapping[str, Any],
        progress: ProgressSink | None = None,
        call_id: str | None = None,
    ) -> CallResult:
        """Call a tool. Calls of one episode run one after the other."""
        return await self._find(found).call(tool, arguments, progress, call_id)

    async def info(self, handle: str, principal: str) -> EpisodeInfo:
        """The state of an episode. Closed and expired episodes are found too, while they are remembered."""
        return self._info(self._episodes.look_up(handle, principal))

    async def keep_alive(self, found: Found) -> EpisodeInfo:
        """Restart the idle timer of an episode."""
        episode = self._find(found)
        episode.touch()
        return self._info(episode)

    async def reset(
        self,
        found: Found,
        *,
        split: str | None = None,
        task: ChosenTask | None = None,
        seed: int | None = None,
    ) -> Opening:
        """Start an episode over. It keeps its task and seed unless others are given."""
        episode = self._find(found)
        await self._episodes.reset(episode, split=split, task=task, seed=seed)
        return _opening(episode)

    async def close(self, handle: str, principal: str) -> EpisodeInfo:
        """Close an episode now. Its environment is freed as soon as no call is running in it."""
        episode = self._episodes.look_up(handle, principal)
        self._episodes.close_soon(episode)
        return self._info(episode)

    async def trajectory(self, handle: str, principal: str) -> Trajectory:
        """The trajectory of an episode."""
        episode = self._episodes.look_up(handle, principal)
        first, steps, dropped = await self._episodes.trajectories.read(handle)
        return Trajectory(
            episode=self._info(episode),
            environment_version=episode.spec.cls.version,
            fingerprint=episode.spec.fingerprint,
            first_observation=first,
            steps=list(steps),
            dropped_steps=dropped,
        )

    def _find(self, found: Found) -> Episode:
        return self._episodes.find(found.handle, found.principal)

    def _info(self, episode: Episode) -> EpisodeInfo:
        return episode.info(self._episodes.limits.idle_seconds)


def _opening(episode: Episode) -> Opening:
    return Opening(episode.handle, episode.spec, episode.prompt, episode.first_observation, episode.request.seed)
