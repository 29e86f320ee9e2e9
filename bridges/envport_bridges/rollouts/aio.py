"""Playing episodes from async code."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from envport.types import Choice, ChosenTask, EnvironmentInfo, TaskPage
from envport_bridges.rollouts.backend import CallReply, RolloutTarget
from envport_bridges.rollouts.connection import Connection
from envport_bridges.rollouts.player import PlayedRollout, RolloutPlayer, connected

__all__ = ["AsyncRollout", "AsyncRollouts"]

ResultT = TypeVar("ResultT")


class AsyncRollouts:
    """Plays episodes of one environment. The same as `Rollouts`, for asyncio.

    Made by `AsyncRollouts.connect`.

    Attributes:
        environment: The environment: its tools as MCP lists them, its splits and its limits.
    """

    def __init__(self, connection: Connection, environment: EnvironmentInfo):
        self._connection = connection
        self.environment = environment

    @classmethod
    async def connect(cls, target: str | RolloutTarget) -> AsyncRollouts:
        """Connect to an environment; see `Rollouts`."""
        return cls(*await asyncio.to_thread(connected, target))

    async def tasks(self, split: str, *, offset: int = 0, limit: int = 100) -> TaskPage:
        """A page of the tasks of a split."""
        return await _in_loop(self._connection, self._connection.source.tasks(split, offset, limit))

    async def open(
        self, *, split: str | None = None, task: ChosenTask | None = None, seed: int | None = None
    ) -> AsyncRollout:
        """Open an episode; see `Rollouts.open`."""
        opening = RolloutPlayer.open(self._connection, self.environment, Choice(split, task, seed))
        return AsyncRollout(self._connection, await _in_loop(self._connection, opening))


class AsyncRollout(PlayedRollout):
    """One episode; see `Rollout`. Closes it as an async context manager."""

    def __init__(self, connection: Connection, player: RolloutPlayer):
        super().__init__(player)
        self._connection = connection

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallReply:
        """Call a tool; see `Rollout.call`."""
        return await _in_loop(self._connection, self._player.call(tool, arguments))

    async def fork(self, step: int | None = None) -> AsyncRollout:
        """Open a copy of the episode; see `Rollout.fork`."""
        return AsyncRollout(self._connection, await _in_loop(self._connection, self._player.fork(step)))

    async def finish(self) -> float | None:
        """End the episode, if it has not ended, and wait for its reward; see `Rollout.finish`."""
        return await _in_loop(self._connection, self._player.finish())

    async def aclose(self) -> None:
        """Close the episode, if it has not ended."""
        await _in_loop(self._connection, self._player.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


async def _in_loop(connection: Connection, work: Coroutine[Any, Any, ResultT]) -> ResultT:
    return await connection.loop.run_async(work)
