"""Shared by all environment instances of one target: the event loop, the connections and the open episodes."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import secrets
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from envport.backoff import Backoff
from envport.errors import AtCapacity, EnvportError, GatewayUnreachable, MissingExtra
from envport.types import Choice, EnvironmentInfo
from envport_bridges.rollouts.backend import EpisodeSource, RolloutEpisode, RolloutTarget
from envport_bridges.rollouts.labels import RolloutLabels
from envport_bridges.rollouts.loop import BackgroundLoop
from envport_bridges.rollouts.notices import WaitingNotice

__all__ = ["Connection", "connect"]

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

_CLOSING_SECONDS = 5.0
_LISTING_SECONDS = 60.0


class Connection:
    """The episodes that this process holds at one target.

    Args:
        target: Where the environment is.
    """

    def __init__(self, target: RolloutTarget):
        self.target = target
        self.loop = BackgroundLoop(f"envport {target.where}")
        self._held: dict[str, _Held] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._gave_up = False
        self._waiting = WaitingNotice(target, "episodes")
        self._keeping = False
        self._listing_checked = 0.0
        self._announced: set[str] = set()
        self._labels = RolloutLabels(dict(target.labels))
        try:
            self.source: EpisodeSource = self.loop.run(self._make())
        except BaseException:
            self.loop.stop()
            raise

    async def _make(self) -> EpisodeSource:
        source = _source(self.target)
        await source.start()
        self._listing_checked = self.now()
        return source

    def now(self) -> float:
        """The time of the loop, in seconds."""
        return asyncio.get_running_loop().time()

    async def describe(self) -> EnvironmentInfo:
        """The environment. If the gateway is unreachable, wait up to the target's `patience`.

        Raises:
            GatewayUnreachable: The gateway stayed unreachable.
            UnknownEnvironment: There is no such environment.
        """
        backoff = Backoff(self.target.patience)
        while True:
            try:
                return await self.source.describe()
            except GatewayUnreachable:
                if not await backoff.wait():
                    raise

    async def open(self, choice: Choice) -> RolloutEpisode:
        """Open an episode. If the gateway is unreachable or full, wait up to the target's `patience`.

        After one episode has waited in vain, later ones try only once, until one succeeds. So a trainer that resets
        its environments one after another does not wait for each of them.

        Raises:
            EnvportError: The episode could not be opened.
        """
        backoff = Backoff(0.0 if self._gave_up else self.target.patience)
        labels, name = self._labels.of(choice), secrets.token_hex(16)
        began = self.now()
        while True:
            try:
                episode = await self.source.open(choice, labels, name)
            except (AtCapacity, GatewayUnreachable) as error:
                self._waiting.say(error, self.now() - began)
                if not await backoff.wait(error.retry_after if isinstance(error, AtCapacity) else 0.0):
                    self._gave_up = True
                    raise
                continue
            self._gave_up = False
            self._waiting.over()
            self._hold(episode)
            return episode

    async def fork(self, episode: RolloutEpisode, step: int | None) -> RolloutEpisode:
        """Open a copy of an episode.

        Raises:
            EnvportError: It could not be opened.
        """
        copy = await self.source.fork(episode, step)
        self._hold(copy)
        return copy

    def _hold(self, episode: RolloutEpisode) -> None:
        self._held[episode.episode_id] = _Held(episode, self.now())

    def used(self, episode: RolloutEpisode) -> None:
        """Record that the trainer just used an episode."""
        if held := self._held.get(episode.episode_id):
            held.used = held.contacted = self.now()

    def suspect(self) -> None:
        """Compare the tool listing before the next episode, because something went wrong."""
        self._listing_checked = float("-inf")

    async def check_listing(self, expected: EnvironmentInfo) -> None:
        """Log it if the gateway's tools are no longer those that the model is shown. Checks only from time to time."""
        if self.now() - self._listing_checked < _LISTING_SECONDS:
            return
        self._listing_checked = self.now()
        try:
            current = await self.source.describe()
        except EnvportError as error:
            logger.debug("the tool listing of %s could not be compared: %s", self.target.where, error)
            self.suspect()
            return
        if current.fingerprint == expected.fingerprint or current.fingerprint in self._announced:
            return
        self._announced.add(current.fingerprint)
        before, after = ({tool["name"]: tool for tool in info.tools} for info in (expected, current))
        changed = sorted({name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}) or [
            "their order"
        ]
        logger.error(
            "THE TOOL LISTING OF %s HAS CHANGED since this run began (%s). The model is still shown the old "
            "tools, so what it learns no longer fits the environment: stop the run and start it anew.",
            self.target.where,
            ", ".join(changed),
        )

    def release(self, episode: RolloutEpisode, *, ended: bool) -> None:
        """Close an episode without waiting for it. An ended episode needs no closing."""
        if self._held.pop(episode.episode_id, None) is not None and not ended:
            self.spawn(self._close(episode))

    def spawn(self, work: Coroutine[Any, Any, ResultT]) -> asyncio.Task[ResultT]:
        """Run a coroutine in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._settled)
        return task

    def _settled(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        # Retrieve the exception so that asyncio does not log it; callers that need the result await the task.
        if not task.cancelled():
            task.exception()

    async def _close(self, episode: RolloutEpisode) -> None:
        try:
            await self.source.close(episode)
        except EnvportError as error:
            logger.debug("episode %s could not be closed: %s", episode.episode_id, error)

    def keep_alive(self, idle_seconds: float) -> None:
        """Start to keep open episodes from expiring. Further calls change nothing."""
        if not self._keeping:
            self._keeping = True
            self.loop.submit(self._keep_alive_forever(idle_seconds / 3))

    async def _keep_alive_forever(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval / 2)
            due = [
                held
                for held in self._held.values()
                if self.now() - held.contacted >= interval / 2 and self.now() - held.used < self.target.keep_alive
            ]
            for held in due:
                held.contacted = self.now()
                try:
                    await self.source.keep_alive(held.episode)
                except EnvportError as error:
                    logger.debug("episode %s could not be kept alive: %s", held.episode.episode_id, error)

    def stop(self) -> None:
        """Close every episode and the connections."""
        try:
            self.loop.run(self._stop(), _CLOSING_SECONDS)
        except Exception as error:  # At exit, no caller is left that could handle it.
            logger.debug("closing the connection to %s failed: %r", self.target.where, error)
        self.loop.stop()

    async def _stop(self) -> None:
        episodes = [held.episode for held in self._held.values()]
        self._held.clear()
        await asyncio.gather(*map(self._close, episodes), *self._tasks, return_exceptions=True)
        await self.source.stop()


class _Held:
    """An open episode, and the times of its last use by the trainer and of its last request to the gateway."""

    def __init__(self, episode: RolloutEpisode, now: float):
        self.episode = episode
        self.used = self.contacted = now


def _source(target: RolloutTarget) -> EpisodeSource:
    if target.remote:
        from envport_bridges.rollouts.remote import RemoteEpisodes

        return RemoteEpisodes(target)
    try:
        from envport_bridges.rollouts.local import LocalEpisodes
    except ModuleNotFoundError as missing:
        if missing.name not in ("envport_bridges.rollouts.local", "envport.episodes"):
            raise
        raise MissingExtra(f"Playing {target.where!r} in this process", "", "pip install envport") from None
    return LocalEpisodes(target)


_connections: dict[RolloutTarget, Connection] = {}
_lock = threading.Lock()


def connect(target: RolloutTarget) -> Connection:
    """The connection of this process to a target, made at the first call.

    Raises:
        EnvportError: The target is not valid.
    """
    with _lock:
        if target not in _connections:
            _connections[target] = Connection(target)
        return _connections[target]


def _stop_all() -> None:
    while _connections:
        _connections.popitem()[1].stop()


def _forget_all() -> None:
    # A forked child inherits the objects but not their threads, and it must not close the parent's episodes.
    global _lock
    _lock = threading.Lock()
    _connections.clear()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
