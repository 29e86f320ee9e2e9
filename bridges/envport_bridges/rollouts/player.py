"""Plays episodes through a connection. All of it runs in the connection's event loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envport.errors import EpisodeFailed, EpisodeOver, GatewayUnreachable, InvalidArguments, UnknownEpisode
from envport.types import Choice, EnvironmentInfo, Observation, Outcome
from envport_bridges.rollouts.backend import CallReply, RolloutEpisode, RolloutTarget
from envport_bridges.rollouts.connection import Connection, connect
from envport_bridges.rollouts.score import RolloutScore, lost_to

__all__ = ["PlayedRollout", "RolloutPlayer", "connected"]


def connected(target: str | RolloutTarget) -> tuple[Connection, EnvironmentInfo]:
    """Connect to an environment, and prepare to play it."""
    connection = connect(RolloutTarget(target) if isinstance(target, str) else target)
    info = connection.loop.run(connection.describe())
    connection.source.expect(info.tools)
    connection.keep_alive(info.limits.idle_seconds)
    return connection, info


class RolloutPlayer:
    """One open episode, and what it came to so far.

    Args:
        connection: The connection that opened it.
        info: The environment.
        episode: The episode.
    """

    def __init__(self, connection: Connection, info: EnvironmentInfo, episode: RolloutEpisode):
        self._connection = connection
        self.info = info
        self.episode = episode
        self.score = RolloutScore()
        # How many rewards there were after each call; a refused one has none.
        self._counted: list[int] = []

    @classmethod
    async def open(cls, connection: Connection, info: EnvironmentInfo, choice: Choice) -> RolloutPlayer:
        """Open an episode; see `Connection.open`."""
        return cls(connection, info, await connection.open(choice))

    async def fork(self, step: int | None = None) -> RolloutPlayer:
        """Open a copy of the episode; see `Rollout.fork`."""
        copy = RolloutPlayer(self._connection, self.info, await self._connection.fork(self.episode, step))
        copy._counted = self._counted[:step]
        for reward in self.score.rewards[: copy._counted[-1] if copy._counted else 0]:
            copy.score.count(reward, None)
        return copy

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallReply:
        """Call a tool, and count its reward.

        Raises:
            InvalidArguments: The arguments break the schema; the episode goes on.
            UnknownTool: There is no such tool; the episode goes on.
            EpisodeOver: The episode has ended.
            EpisodeFailed: A fault cut the episode short; it is lost.
        """
        if self.score.outcome is not None:
            raise EpisodeOver(f"The episode is over and takes no more calls. {self.score.outcome.message}")
        self._connection.used(self.episode)
        try:
            reply = await self._connection.source.call(self.episode, tool, arguments)
        except InvalidArguments:
            self._counted.append(len(self.score.rewards))
            raise
        except (EpisodeFailed, EpisodeOver, GatewayUnreachable, UnknownEpisode) as error:
            if isinstance(error, EpisodeOver) and error.fault is None:
                raise
            self.score.outcome = outcome = lost_to(error)
            await self.close()
            if not outcome.lost:
                raise
            owner = "environment" if outcome.fault == "environment" else "infrastructure"
            raise EpisodeFailed(f"The episode was lost: {error}", owner) from error
        finally:
            self._connection.used(self.episode)
        self.score.count(reply.reward, reply.outcome)
        self._counted.append(len(self.score.rewards))
        if reply.outcome is not None and not self.info.scored:
            self._connection.release(self.episode, ended=True)
        return reply

    async def finish(self) -> float | None:
        """End the episode, if it has not ended, and wait for its reward; see `Rollout.finish`."""
        if not self.score.finished and not self.score.lost:
            try:
                self.score.finish(await self._connection.source.finish(self.episode))
            except (GatewayUnreachable, UnknownEpisode) as error:
                self.score.outcome = lost_to(error)
                raise EpisodeFailed(f"The episode was lost: {error}", "infrastructure") from error
            finally:
                await self.close()
        return self.score.total(self.info.reward)

    async def close(self) -> None:
        """Let go of the episode. One that has not ended is closed, without waiting for that."""
        over = self.score.outcome is not None and not self.score.lost
        self._connection.release(self.episode, ended=over)


class PlayedRollout:
    """What is known of one episode.

    Args:
        player: What plays it.
    """

    def __init__(self, player: RolloutPlayer):
        self._player = player

    @property
    def prompt(self) -> str:
        """What the player is told to do."""
        return self._player.episode.prompt

    @property
    def observation(self) -> Observation:
        """The first observation."""
        return self._player.episode.observation

    @property
    def seed(self) -> int:
        """The seed in use."""
        return self._player.episode.seed

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools of the episode, as MCP lists them."""
        own = self._player.episode.tools
        return own if own is not None else self._player.info.tools

    @property
    def rewards(self) -> tuple[float | None, ...]:
        """The reward of each step, `None` where it had none."""
        return tuple(self._player.score.rewards)

    @property
    def reward(self) -> float | None:
        """The episode's reward so far; `None` without any, and if it is lost. Complete after `finish`."""
        return self._player.score.total(self._player.info.reward)

    @property
    def outcome(self) -> Outcome | None:
        """How the episode ended; `None` while it runs."""
        return self._player.score.outcome

    @property
    def lost(self) -> bool:
        """Whether a fault that is not the player's cut it short. Leave it out of training: it is not a reward of 0."""
        return self._player.score.lost
