"""Going on with the episodes that were live when their gateway was stopped."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import anyio

from envport.definition import EnvironmentDefinition
from envport.episodes.admission import Admission
from envport.episodes.again import past_of, require_same, start_of
from envport.episodes.context import EpisodeContext
from envport.episodes.lasting import LastingEpisode
from envport.episodes.past import NotPutBack, Past, not_put_back, why_not_resumed
from envport.episodes.readiness import Preparation
from envport.episodes.requests import EpisodeStart, OpenRequest
from envport.errors import AtCapacity, EnvportError, Resuming, StoreUnavailable
from envport.runtimes import Runtime
from envport.trajectories import EpisodeSnapshot, EpisodeState, StoredEpisode

__all__ = ["ResumedEpisodes", "being_resumed"]

logger = logging.getLogger(__name__)

# Each may start a process, and players of other episodes are not to wait for all of them.
_AT_A_TIME = 16


def being_resumed(preparation: Preparation, count: int) -> Preparation:
    """The preparation status of an environment while some of its episodes wait to be put back.

    Args:
        preparation: Its status if no episode waited.
        count: How many episodes wait.
    """
    if preparation.status != "ready":
        return preparation
    return replace(preparation, status="preparing", reason=f"{count} episodes are being put back")


@dataclass(frozen=True)
class _Pending:
    stored: StoredEpisode
    episode: LastingEpisode
    settled: anyio.Event


class ResumedEpisodes:
    """Puts the episodes back that were live when their gateway was stopped.

    Each is in the table under its handle from the beginning. Calls wait until it is put back, for a bounded time.

    Args:
        environments: The environments that are served, by name.
        context: What all episodes of the table share.
        admission: Gives them their places.
        runtime_of: The runtime of an environment.
        hold: Puts an episode into the table.
    """

    def __init__(
        self,
        environments: Mapping[str, EnvironmentDefinition],
        context: EpisodeContext,
        admission: Admission,
        runtime_of: Callable[[EnvironmentDefinition], Runtime],
        hold: Callable[[LastingEpisode], None],
    ):
        self._environments = environments
        self._context = context
        self._admission = admission
        self._runtime_of = runtime_of
        self._hold = hold
        self._pending: dict[str, _Pending] = {}

    def __contains__(self, handle: str) -> bool:
        """Whether an episode waits to be put back."""
        return handle in self._pending

    @property
    def waiting(self) -> Counter[str]:
        """How many episodes wait to be put back, by the name of their environment."""
        return Counter(pending.episode.spec.name for pending in self._pending.values())

    async def take_over(self) -> None:
        """Take the episodes into the table that are to go on."""
        for stored in await self._context.trajectories.left():
            try:
                await self._take(stored)
            except (NotPutBack, AtCapacity) as error:
                self._lose(stored, str(error).rstrip("."))

    async def run(self) -> None:
        """Put the episodes back, some at a time."""
        if not self._pending:
            return
        logger.info("%d episodes from before the restart are being put back", len(self._pending))
        limiter = anyio.CapacityLimiter(_AT_A_TIME)
        async with anyio.create_task_group() as tasks:
            for pending in list(self._pending.values()):
                tasks.start_soon(self._settle, pending, limiter)

    async def settled(self, handle: str) -> None:
        """Wait until an episode is put back, or cannot be.

        Raises:
            Resuming: It takes longer than a caller is to wait.
        """
        pending = self._pending.get(handle)
        if pending is None:
            return
        with anyio.move_on_after(self._context.limits.wait_seconds):
            await pending.settled.wait()
        if handle in self._pending:
            raise Resuming

    async def _take(self, stored: StoredEpisode) -> None:
        info = stored.info
        spec = self._environments.get(info.environment)
        if spec is None:
            raise NotPutBack(f"its environment {info.environment!r} is not served any more")
        await self._admission.acquire(stored.principal, spec.name, wait=False)
        request = OpenRequest(
            spec.name, stored.principal, reward_in_meta=stored.reward_in_meta, labels=info.labels, secrets=spec.secrets
        )
        # The task may be another system's, which is asked later.
        start = EpisodeStart(info.seed or 0, spec.toolset, info.split, info.task, info.task_index)
        known = Past(stored.first_observation, [], info.created_at, info.resets)
        episode = LastingEpisode(info.episode_id, spec, request, start, self._runtime_of(spec), self._context, known)
        self._hold(episode)
        self._pending[info.episode_id] = _Pending(stored, episode, anyio.Event())

    async def _settle(self, pending: _Pending, limiter: anyio.CapacityLimiter) -> None:
        handle = pending.episode.handle
        try:
            async with limiter:
                await self._put_back(pending)
        except Exception:
            logger.exception("episode %s could not be put back", handle)
            await pending.episode.give_up(not_put_back("the gateway failed meanwhile", forked=False), None)
        # If the gateway is stopped meanwhile, the episode stays among those that wait, for the next one.
        del self._pending[handle]
        pending.settled.set()

    async def _put_back(self, pending: _Pending) -> None:
        stored, episode = pending.stored, pending.episode
        trajectories, past = self._context.trajectories, None
        assert trajectories.archive is not None
        try:
            past = await past_of(trajectories.archive, stored, await trajectories.resume_point(episode.handle))
            require_same(episode.spec, stored)
            if (why := why_not_resumed(episode.spec, stored.origin)) is not None:
                raise NotPutBack(why)
            episode.start_from(await start_of(episode.spec, stored))
        except (NotPutBack, EnvportError) as error:
            await episode.give_up(not_put_back(str(error).rstrip("."), forked=False), past)
            return
        try:
            await episode.put_back(past)
        except NotPutBack as failed:
            logger.warning("episode %s cannot go on: %s", episode.handle, failed, extra=episode.subject.fields())

    def _lose(self, stored: StoredEpisode, why: str) -> None:
        """Record that an episode cannot go on which is not in the table."""
        outcome = not_put_back(why, forked=False)
        info = stored.info.model_copy(
            update={"status": "failed", "outcome": outcome, "reward": None, "ended_at": self._context.clock.time()}
        )
        state = EpisodeState.of(info)
        snapshot = EpisodeSnapshot(
            state=state,
            episode_id=info.episode_id,
            environment=info.environment,
            split=info.split,
            task=info.task,
            task_index=info.task_index,
            seed=info.seed,
            resets=info.resets,
            labels=info.labels,
            fingerprint=info.fingerprint,
            principal=stored.principal,
            environment_version=stored.environment_version,
            prompt=stored.prompt,
            first_observation=stored.first_observation,
            tools=[],
        )
        logger.warning("episode %s cannot go on: %s", info.episode_id, why)
        try:
            self._context.trajectories.end(info.episode_id, state, lambda: snapshot)
        except StoreUnavailable as error:
            logger.error("the end of episode %s could not be recorded: %s", info.episode_id, error)
