"""Episodes that can be copied, and that can go on after a restart of the gateway."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import anyio

from envport.episodes.episode import Episode
from envport.episodes.past import NotPutBack, Past, not_put_back
from envport.episodes.requests import EpisodeStart
from envport.errors import EpisodeFailed, InvalidRequest, StoreUnavailable
from envport.telemetry.subject import episode_at_hand
from envport.types import Outcome

__all__ = ["LastingEpisode"]


class LastingEpisode(Episode):
    """An `Episode` with a past: it may begin with calls that were played before, and leave them to another one."""

    @property
    def outlives(self) -> bool:
        """Whether it goes on after a restart of the gateway."""
        return self._resumes and self.status == "running"

    @property
    def secrets(self) -> Mapping[str, str]:
        """The secrets of the environment."""
        return self._secrets

    @property
    def reward_in_meta(self) -> bool:
        """Whether the player may be shown the reward."""
        return self._reward_in_meta

    async def put_back(self, past: Past) -> None:
        """Make the environment, and put it into the state that it had after the calls of the past.

        Args:
            past: What it was before.

        Raises:
            NotPutBack: That cannot be done; the episode has ended as failed.
        """
        token = episode_at_hand.set(self.subject)
        try:
            async with self._turn:
                # Its owner may have closed it before its turn came.
                if self.status == "opening":
                    await self._put_back(past)
        finally:
            episode_at_hand.reset(token)
        if self._run.holds_environment and not self.live:
            await self.free()

    async def give_up(self, outcome: Outcome, past: Past | None) -> None:
        """End an episode that cannot be put back.

        Args:
            outcome: How it ends.
            past: What it was before, if that could be read.
        """
        async with self._turn:
            if past is not None:
                self._run.recall(past)
            self._life.break_off(outcome)
            await self._retire()

    def start_from(self, start: EpisodeStart) -> None:
        """Set what it starts from, before it is put back."""
        self._run.start = start

    async def branch(self, step: int | None) -> tuple[bytes | None, Past]:
        """A copy of the environment's state, if it can be copied, and the calls so far. Waits for the running call.

        Args:
            step: How many calls are wanted; `None` for all. The state is copied only for all.

        Raises:
            EpisodeOver: It has ended in the meantime.
            EpisodeFailed: The environment broke; the episode has ended as failed.
        """
        self._callers += 1
        try:
            async with self._turn:
                if not self._running:
                    raise self._over()
                with anyio.CancelScope(shield=True):
                    copied = self.spec.has_snapshots and step in (None, self._record.calls)
                    snapshot = await self._snapshot_of_environment() if copied else None
                    return snapshot, await self._past_so_far()
        finally:
            self._callers -= 1
            self.touch()
        raise AssertionError

    async def suspend(self) -> None:
        """Free the environment, and leave the episode to the next gateway as it is."""
        async with self._turn:
            if self.live:
                self._suspended = True
                await self._release_environment()

    async def _put_back(self, past: Past) -> None:
        self._run.recall(past)
        on_lost = partial(self._lost_between_calls, self._run)
        try:
            with anyio.CancelScope(shield=True):
                await self._run.put_back(
                    self._runtime, self._secrets, on_lost, self.snapshot, past, reward_in_meta=self._reward_in_meta
                )
        except (NotPutBack, StoreUnavailable) as failed:
            self._life.break_off(not_put_back(failed, forked=past.forked_from is not None))
            await self._retire()
            raise NotPutBack(str(failed)) from None
        self.last_used = self._clock.monotonic()

    async def _snapshot_of_environment(self) -> bytes:
        try:
            return await self._run.snapshot()
        except EpisodeFailed:
            await self._retire()
            raise

    async def _past_so_far(self) -> Past:
        first, steps, dropped = await self._context.trajectories.read(self.handle)
        if dropped:
            raise InvalidRequest(f"The first {dropped} calls of this episode are not kept any more.")
        return Past(first, steps, self.created_at)
