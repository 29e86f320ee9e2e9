"""Playing episodes from code without an event loop."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from envport.types import Choice, ChosenTask, TaskPage
from envport_bridges.rollouts.backend import CallReply, RolloutTarget
from envport_bridges.rollouts.connection import Connection
from envport_bridges.rollouts.player import PlayedRollout, RolloutPlayer, connected

__all__ = ["Rollout", "Rollouts"]


class Rollouts:
    """Plays episodes of one environment. May be used by many threads.

    All objects of a process with the same target share their connections. Open episodes are kept from expiring, and are
    closed when the process ends.

    Args:
        target: URL of the environment on a gateway, such as `http://127.0.0.1:8000/environments/catch` (token in
            `ENVPORT_TOKEN`); or a reference as for `envport serve`, which is then played in this process; or either
            with further settings.

    Attributes:
        environment: The environment: its tools as MCP lists them, its splits and its limits.

    Raises:
        ConfigurationError: The URL does not name an environment.
        GatewayUnreachable: There was no usable answer.
        UnknownEnvironment: There is no such environment.
    """

    def __init__(self, target: str | RolloutTarget):
        self._connection, self.environment = connected(target)

    def tasks(self, split: str, *, offset: int = 0, limit: int = 100) -> TaskPage:
        """A page of the tasks of a split.

        Raises:
            UnknownTask: There is no such split.
        """
        return self._connection.loop.run(self._connection.source.tasks(split, offset, limit))

    def open(self, *, split: str | None = None, task: ChosenTask | None = None, seed: int | None = None) -> Rollout:
        """Open an episode. If the gateway is unreachable or full, waits up to the target's `patience`.

        Args:
            split: The split to take the task from; the first one if not given.
            task: Index of the task, or a task of your own; the seed chooses one if not given.
            seed: The seed; random if not given. The same task and seed give the same episode.

        Raises:
            RequestError: There is no such split or task, or the seed is malformed.
            EpisodeFailed: The environment failed.
            AtCapacity: No place became free in time.
            GatewayUnreachable: There was no usable answer in time.
        """
        opening = RolloutPlayer.open(self._connection, self.environment, Choice(split, task, seed))
        return Rollout(self._connection, self._connection.loop.run(opening))


class Rollout(PlayedRollout):
    """One episode. Closes it as a context manager."""

    def __init__(self, connection: Connection, player: RolloutPlayer):
        super().__init__(player)
        self._connection = connection

    def call(self, tool: str, arguments: Mapping[str, Any]) -> CallReply:
        """Call a tool.

        Args:
            tool: Name of the tool.
            arguments: The arguments as parsed JSON.

        Returns:
            What the player sees, and the reward of the step. `is_error` is true if the environment refused the call,
            with a message for the player; the episode goes on.

        Raises:
            InvalidArguments: The arguments break the schema, with a message for the player; the episode goes on.
            UnknownTool: There is no such tool; the episode goes on.
            EpisodeOver: The episode has ended.
            EpisodeFailed: A fault cut the episode short; it is lost.
        """
        return self._connection.loop.run(self._player.call(tool, arguments))

    def fork(self, step: int | None = None) -> Rollout:
        """Open a copy of the episode, as for tree search. Both go on apart.

        Args:
            step: How many of the calls the copy begins with; all of them if not given.

        Returns:
            The copy. Its observation is what the player saw last.

        Raises:
            InvalidRequest: There are fewer calls, or the episode cannot be copied there; the message says why.
            AtCapacity: There is no room for another episode.
            EpisodeFailed: The environment failed.
        """
        return Rollout(self._connection, self._connection.loop.run(self._player.fork(step)))

    def finish(self) -> float | None:
        """End the episode, if it has not ended, and wait until its final state is scored.

        Returns:
            Its reward; `None` if there was none, or if a fault cut it short.

        Raises:
            EpisodeFailed: The gateway no longer knows it; it is lost.
        """
        return self._connection.loop.run(self._player.finish())

    def close(self) -> None:
        """Close the episode, if it has not ended."""
        self._connection.loop.run(self._player.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
