"""One episode played by an agent: opened and scored by us, played by a program that holds two tokens and no more."""

from __future__ import annotations

import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from envport.blocks import text_of
from envport.errors import ConfigurationError, EnvportError, GatewayUnreachable
from envport.types import Choice, EnvironmentInfo, EpisodeInfo
from envport_bridges.agents.model.sessions import ModelSession
from envport_bridges.agents.outages import OutageWatch
from envport_bridges.agents.programs.deadlines import Deadline
from envport_bridges.agents.programs.missions import Mission, ModelAccess
from envport_bridges.agents.programs.processes import Ended
from envport_bridges.agents.programs.running import MissionRunner
from envport_bridges.rollouts.backend import RolloutEpisode
from envport_bridges.rollouts.connection import Connection
from envport_bridges.rollouts.score import RolloutScore, lost_to

__all__ = ["AgentEnding", "AgentEpisode", "AgentEpisodes", "SessionSource"]

ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)

AgentEnding = Literal["exited", "crashed", "deadline"]
"""How an agent ended: by itself, by itself with an error, or because its time was over."""


class SessionSource(Protocol):
    """Opens sessions of a model; the model endpoint."""

    @property
    def anthropic_url(self) -> str:
        """Its root, such as `http://127.0.0.1:8001`."""
        ...

    def open_session(self, max_calls: int) -> ModelSession:
        """A session with a token of its own."""
        ...

    def end_session(self, session: ModelSession) -> None:
        """Answer no more of its requests."""
        ...


@dataclass
class AgentEpisode:
    """An episode that an agent played.

    Attributes:
        choice: Its task and seed.
        prompt: What the agent was told: the task's prompt and the first observation.
        session: All that its model wrote; `None` if the episode could not be opened.
        ended: How its program ended; `None` if it was not started.
        score: What it came to.
        reward: Its reward: 0 if no step had one, `None` if it is lost.
        steps: Calls that reached the environment.
        refused: Calls that were refused, or that the environment answered with an error.
        seconds: How long the program ran.
    """

    choice: Choice
    prompt: str = ""
    session: ModelSession | None = None
    ended: Ended | None = None
    score: RolloutScore = field(default_factory=RolloutScore)
    reward: float | None = None
    steps: int = 0
    refused: int = 0
    seconds: float = 0.0

    @property
    def ending(self) -> AgentEnding | None:
        """How its program ended; `None` if it was not started."""
        if self.ended is None:
            return None
        if self.ended.code is None:
            return "deadline"
        # A resident that ends before it has answered has failed, whatever its exit code.
        return "crashed" if self.ended.broke is not None else "exited"

    @property
    def model_calls(self) -> int:
        """How many turns its model wrote."""
        return len(self.session.calls.calls) if self.session is not None else 0

    @property
    def finished(self) -> bool:
        """Whether it came to an end, other than because its agent stopped or because it was lost."""
        outcome = self.score.outcome
        return outcome is not None and not outcome.lost and outcome.reason != "finished"

    def take(self, info: EpisodeInfo) -> None:
        """Take over what the gateway says about it."""
        self.score = RolloutScore(list(info.rewards), info.outcome, info.steps, finished=True)
        self.steps, self.refused = info.steps, info.errors
        self.reward = None if self.score.lost else info.reward or 0.0


class AgentEpisodes:
    """Plays episodes of one environment with an agent.

    Attributes:
        outages: Watches the gateway; to be run while episodes are played.

    Args:
        connection: The connection to the gateway, which mints a token for each episode.
        info: The environment.
        runner: Runs the agent.
        seconds: What an agent has for an episode, without the time in which its model writes.
        max_calls: Most turns of the model in an episode.
    """

    def __init__(
        self, connection: Connection, info: EnvironmentInfo, runner: MissionRunner, seconds: float, max_calls: int
    ):
        self.outages = OutageWatch(connection)
        self._connection = connection
        self._info = info
        self._runner = runner
        self._seconds = seconds
        self._max_calls = max_calls

    async def play(self, choice: Choice, sessions: SessionSource) -> AgentEpisode:
        """Play an episode, in any event loop.

        Never raises for a fault of the gateway or the environment: the episode is then lost.

        Args:
            choice: Its task and seed.
            sessions: Opens a session of the agent's model.

        Raises:
            ConfigurationError: The agent's sandbox could not be made.
        """
        played = AgentEpisode(choice)
        try:
            opened = await self._there(self._connection.open(choice))
        except EnvportError as error:
            self._lose(played, error, "could not be opened")
            return played
        try:
            await self._play(played, opened, sessions)
        except ConfigurationError:
            raise
        except EnvportError as error:
            self._lose(played, error, "could not be scored")
        finally:
            self._connection.loop.submit(self._release(opened, played.score.finished))
        return played

    async def _play(self, played: AgentEpisode, opened: RolloutEpisode, sessions: SessionSource) -> None:
        first = "\n".join(map(text_of, opened.observation.content))
        played.prompt = f"{opened.prompt}\n\n{first}" if opened.prompt else first
        deadline = Deadline(self._seconds)
        played.session = sessions.open_session(self._max_calls)
        played.session.answering = deadline.paused
        began = time.monotonic()
        try:
            played.ended = await self._runner.run(self._mission(played, opened, sessions), deadline)
        finally:
            sessions.end_session(played.session)
            played.seconds = time.monotonic() - began
        played.take(await self._there(self._connection.source.finish(opened)))
        if not played.finished and not played.score.lost:
            await self._excuse(began)

    def _mission(self, played: AgentEpisode, opened: RolloutEpisode, sessions: SessionSource) -> Mission:
        assert opened.token is not None
        assert played.session is not None
        return Mission(
            opened.address, opened.token, played.prompt, ModelAccess(sessions.anthropic_url, played.session.token)
        )

    async def _there(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Do something in the connection's event loop."""
        return await self._connection.loop.run_async(work)

    async def _release(self, opened: RolloutEpisode, ended: bool) -> None:
        self._connection.release(opened, ended=ended)

    async def _excuse(self, began: float) -> None:
        """An agent that does not come to the end while its gateway is away is not to blame."""
        await self.outages.look()
        if self.outages.away_since(began):
            raise GatewayUnreachable("the gateway was away while the agent played")

    def _lose(self, played: AgentEpisode, error: EnvportError, how: str) -> None:
        logger.error("an episode of %s %s; it is left out of training: %s", self._info.name, how, error)
        played.score.outcome = lost_to(error)
        played.reward = None
