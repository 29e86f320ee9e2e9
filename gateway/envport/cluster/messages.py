"""What a replica asks of a host. Each message says what its answer is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from envport.episodes import CallResult, EpisodeTable, Found, Opening, OpenRequest, Preparation
from envport.runtimes import ProgressSink
from envport.types import Choice, EpisodeInfo, LegalCall, Observation, Task, Trajectory

__all__ = [
    "AnswerT",
    "CallMessage",
    "CloseMessage",
    "EpisodeMessage",
    "FinishMessage",
    "HostLoad",
    "HostMessage",
    "InfoMessage",
    "KeepAliveMessage",
    "LegalCallsMessage",
    "ListMessage",
    "LoadMessage",
    "OpenMessage",
    "OpenedThere",
    "OpeningMessage",
    "ResetMessage",
    "TrajectoryMessage",
]

AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class OpenedThere:
    """An `Opening` without its environment, which the replica already has.

    Attributes:
        handle: The episode's handle.
        prompt: What the player is told to do.
        observation: The first observation.
        seed: The seed in use.
        task: The task, if the tools of the episode depend on it.
    """

    handle: str
    prompt: str
    observation: Observation
    seed: int
    task: Task | None

    @classmethod
    def of(cls, opening: Opening) -> OpenedThere:
        """Leave the environment out of an opening."""
        task = opening.task if opening.spec.tools_vary else None
        return cls(opening.handle, opening.prompt, opening.observation, opening.seed, task)


@dataclass(frozen=True, slots=True)
class HostLoad:
    """The current load of a host.

    Attributes:
        live: Episodes that hold resources.
        capacity: The most episodes that may hold resources.
        preparations: The preparation status of each environment, by name.
    """

    live: int
    capacity: int
    preparations: Mapping[str, Preparation]


class HostMessage(Protocol[AnswerT_co]):
    """A request of a replica. Safe to pickle.

    Attributes:
        repeatable: Whether it may be sent again if it is not known whether it was executed.
    """

    repeatable: ClassVar[bool]

    async def answer(self, table: EpisodeTable, progress: ProgressSink | None) -> AnswerT_co:
        """Do what the message asks for. Runs on the host.

        Args:
            table: The episodes of the host.
            progress: Receives progress.

        Raises:
            EnvportError: See the method of `EpisodeTable`.
        """
        ...


@dataclass(frozen=True)
class LoadMessage:
    """How many episodes are live?"""

    repeatable: ClassVar[bool] = True

    async def answer(self, table: EpisodeTable, progress: ProgressSink | None) -> HostLoad:
        """The load."""
        return HostLoad(table.live, table.limits.max_episodes, table.preparations)


@dataclass(frozen=True)
class ListMessage:
    """Which episodes have these labels?

    Attributes:
        principal: Name of the principal that owns them.
        labels: The labels.
        limit: The most episodes to return.
    """

    principal: str
    labels: Mapping[str, str]
    limit: int
    repeatable: ClassVar[bool] = True

    async def answer(self, table: EpisodeTable, progress: ProgressSink | None) -> list[EpisodeInfo]:
        """The episodes of this host."""
        return await table.list_episodes(self.principal, self.labels, self.limit)


@dataclass(frozen=True)
class OpenMessage:
    """Open an episode.

    Attributes:
        request: The request.
    """

    request: OpenRequest
    # It has no id, so a second one would open a second episode.
    repeatable: ClassVar[bool] = False

    async def answer(self, table: EpisodeTable, progress: ProgressSink | None) -> OpenedThere:
        """Open it."""
        return OpenedThere.of(await table.open(self.request))


@dataclass(frozen=True)
class EpisodeMessage(Generic[AnswerT]):
    """A request about one episode.

    Attributes:
        handle: Its handle.
        principal: Name of the principal that owns it.
    """

    handle: str
    principal: str
    repeatable: ClassVar[bool] = True

    async def answer(self, table: EpisodeTable, progress: ProgressSink | None) -> AnswerT:
        """Do what the message asks for."""
        raise NotImplementedError

    def found(self, table: EpisodeTable) -> Found:
        """The episode, to play it."""
        return table.find(self.handle, self.principal)


@dataclass(frozen=True)
class OpeningMessage(EpisodeMessage[OpenedThere]):
    """How did the episode begin?"""

    async def answer(self, table: EpisodeTable, progress: ProgressSink | None) -> OpenedThere:
        """Its prompt, first observation and seed."""
        return OpenedThere.of(await table.opening(self.found(table)))


@dataclass(frozen=True)
class CallMessage(EpisodeMessage[CallResult]):
    """Call a tool.

    Attributes:
        tool: Name of the tool.
        arguments: The arguments as parsed JSON.
        call_id: Id of the call. It is executed once, even if it is sent again.
    """

    tool: str
    arguments: Mapping[str, Any]
    call_id: str

    async def answer(self, table: EpisodeTable, progress: ProgressSink | None) -> CallResult:
        """Call it."""
        return await table.call(self.found(table), self.tool, self.arguments, progress, self.call_id)


@dataclass(frozen=True)
class LegalCallsMessage(EpisodeMessage[list[LegalCall] | None]):
    """Which calls make sense in the episode now?"""

    async def answer(self, table: EpisodeTable, progress: ProgressSink | None) -> list[LegalCall] | None:
        """The calls."""
        return await table.legal_calls(self.found(table))


@dataclass(frozen=True)
class InfoMessage(EpisodeMessage[EpisodeInfo]):
    """What is the state of the episode?"""

    async def answer(self, table: EpisodeTable, progress: ProgressSink | None) -> EpisodeInfo:
        """Its state."""
        return await table.info(self.handle, self.principal)


@dataclass(frozen=True)
class KeepAliveMessage(EpisodeMessage[EpisodeInfo]):
    """Restart the idle timer of the episode."""

    async def answer(self, table: EpisodeTable, progress: ProgressSink | None) -> EpisodeInfo:
        """Restart it, and return the episode's state."""
        return await table.keep_alive(self.found(table))


@dataclass(frozen=True)
class ResetMessage(EpisodeMessage[OpenedThere]):
    """Start the episode over.

    Attributes:
        choice: Split, task and seed.
    """

    choice: Choice

    async def answer(self, table: EpisodeTable, progress: ProgressSink | None) -> OpenedThere:
        """Start it over."""
        return OpenedThere.of(await table.reset(self.found(table), self.choice))


@dataclass(frozen=True)
class CloseMessage(EpisodeMessage[EpisodeInfo]):
    """Close the episode."""

    async def answer(self, table: EpisodeTable, progress: ProgressSink | None) -> EpisodeInfo:
        """Close it, and return its last state."""
        return await table.close(self.handle, self.principal)


@dataclass(frozen=True)
class FinishMessage(EpisodeMessage[EpisodeInfo]):
    """End the episode, and wait for its reward."""

    async def answer(self, table: EpisodeTable, progress: ProgressSink | None) -> EpisodeInfo:
        """End it, and return its last state."""
        return await table.finish(self.handle, self.principal)


@dataclass(frozen=True)
class TrajectoryMessage(EpisodeMessage[Trajectory]):
    """What was played in the episode?"""

    async def answer(self, table: EpisodeTable, progress: ProgressSink | None) -> Trajectory:
        """Its trajectory."""
        return await table.trajectory(self.handle, self.principal)
