"""The plays of one environment instance: one episode after another, as the trainer resets it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from envport.blocks import text_block, text_of
from envport.errors import (
    ConfigurationError,
    EnvportError,
    EpisodeFailed,
    EpisodeOver,
    GatewayUnreachable,
    InvalidArguments,
    ToolError,
    UnknownEpisode,
    UnknownTool,
)
from envport.types import EnvironmentInfo, LegalCall, Observation, StepRecord
from envport_bridges.rollouts.backend import CallReply, RolloutEpisode
from envport_bridges.rollouts.connection import Connection
from envport_bridges.rollouts.score import RolloutScore, lost_to
from envport_bridges.trl.ahead import Ahead
from envport_bridges.trl.formats import AS_WRITTEN
from envport_bridges.trl.listings import TaskListing
from envport_bridges.trl.observations import Shown, ShownT, show, without_placeholders
from envport_bridges.trl.rows import choice_of, same_episode
from envport_bridges.trl.tools import ListedTool

__all__ = ["Deferred", "Play", "Record"]

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

_INFRASTRUCTURE = (UnknownEpisode, EpisodeFailed, GatewayUnreachable)


_Call = tuple[str, Mapping[str, Any], CallReply | EnvportError]


@dataclass
class Record(RolloutScore):
    """What is known of one episode.

    Attributes:
        row: The dataset row that it plays.
        episode: The episode, once it is open.
        errors: Calls that were refused, or that the environment answered with an error.
        observation: What came last: the first observation, or a tool's result.
        calls: The calls in order: tool, arguments, and the reply or the refusal.
        over: What a call after the end is answered.
        waited: Seconds for which the trainer waited for it.
        turn: Held by whatever is being done with the episode: in the order in which it was asked for.
    """

    row: Mapping[str, Any] = field(default_factory=dict[str, Any])
    episode: RolloutEpisode | None = None
    errors: int = 0
    observation: Shown = ""
    calls: list[_Call] = field(default_factory=list[_Call])
    over: str | None = None
    waited: float = 0.0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    @property
    def trajectory(self) -> list[StepRecord]:
        """The calls as records. Made when they are asked for, because most runs never do."""
        return [_step_record(index, *call) for index, call in enumerate(self.calls, 1)]


def _step_record(index: int, tool: str, arguments: Mapping[str, Any], answer: CallReply | EnvportError) -> StepRecord:
    if isinstance(answer, EnvportError):
        said = Observation(content=(text_block(str(answer)),))
        return StepRecord(index=index, tool=tool, arguments=dict(arguments), observation=said, error=answer.code)
    return StepRecord(
        index=index,
        tool=tool,
        arguments=dict(arguments),
        observation=Observation(content=tuple(answer.content), structured_content=answer.structured),
        error=ToolError.code if answer.is_error else None,
        reward=answer.reward,
        terminated=answer.outcome is not None and answer.outcome.status == "terminated",
        truncated=answer.outcome is not None and answer.outcome.status == "truncated",
    )


class Play:
    """Plays the episodes of one environment instance, one after another.

    Attributes:
        deferring: Whether calls return before they are played.
        form: How the arguments of calls are read.
        placeholders: Texts that are broken up where an environment shows them: pictures to the model's processor, or
            control tokens.

    Args:
        connection: What runs them.
        info: The environment.
        ahead: What has opened them before they are asked for, if anything.
        listing: The tools that the model is shown, if tasks have tools of their own; otherwise the environment's.
    """

    def __init__(
        self,
        connection: Connection,
        info: EnvironmentInfo,
        ahead: Ahead | None = None,
        listing: TaskListing | None = None,
    ):
        self.connection = connection
        self.info = info
        self.record = Record()
        self._opener = ahead or connection
        self.deferring = False
        self.form = AS_WRITTEN
        self.placeholders: tuple[str, ...] = ()
        self._listing = listing
        self._begun: tuple[Mapping[str, Any], Future[Shown]] | None = None
        connection.source.expect(listing.tools if listing is not None else info.tools)
        connection.keep_alive(info.limits.idle_seconds)

    def begin(self, row: Mapping[str, Any]) -> None:
        """Open the episode of a row ahead; `start` with an equal row takes it up."""
        if not self._has_begun(row):
            self._begun = (row, self._submit(row))

    def start(self, row: Mapping[str, Any]) -> Shown:
        """Let go of the last episode, open that of a row, and return its first observation.

        Never raises for a fault: the episode then counts as lost, and every call is told so.
        """
        self.begin(row)
        assert self._begun is not None
        (_, opening), self._begun = self._begun, None
        self.record.row = row
        return self.wait(opening)

    def _has_begun(self, row: Mapping[str, Any]) -> bool:
        return self._begun is not None and same_episode(self._begun[0], row)

    def _submit(self, row: Mapping[str, Any]) -> Future[Shown]:
        before, self.record = self.record, Record(row=row)
        return self.connection.loop.submit(self._open(self.record, before))

    async def _open(self, record: Record, before: Record) -> Shown:
        async with record.turn, before.turn:
            self._release(before)
            return await self._open_next(record)

    async def _open_next(self, record: Record) -> Shown:
        try:
            await self.connection.check_listing(self.info)
            record.episode = await self._opener.open(choice_of(record.row))
            self._check_tools(record.episode)
            observation = record.episode.observation
            record.observation = self._broken_up(show(observation.content, observation.structured_content))
        except Exception as error:
            self._lose(record, error, "could not be opened")
            record.observation = "The environment could not be started."
        return record.observation

    def _check_tools(self, episode: RolloutEpisode) -> None:
        if self._listing is not None and episode.fingerprint != self._listing.fingerprint:
            raise ConfigurationError(
                f"its task has other tools than the model is shown, which are those of {self._listing.name!r} in the "
                "dataset's column 'environment'. Train on spec.train_dataset, and start anew if the tasks have changed."
            )

    def call(self, tool: ListedTool, arguments: dict[str, Any]) -> Shown:
        """Call a tool and wait for what the model gets to see.

        While calls are deferred, returns at once, and what it returns is to be resolved by whoever deferred them.

        Raises:
            EnvportError: What the model is to be told instead, as a failure.
        """
        if self.deferring:
            return Deferred(self, self.submit(tool, arguments))
        return self._waited(partial(self.connection.loop.run, self._read_and_called(tool, arguments)))

    def submit(self, tool: ListedTool, arguments: dict[str, Any]) -> Future[Shown]:
        """Start a call; see `call`."""
        return self.connection.loop.submit(self._read_and_called(tool, arguments))

    def _read_and_called(self, tool: ListedTool, arguments: dict[str, Any]) -> Coroutine[Any, Any, Shown]:
        return self._call(self.record, tool, dict(self.form.read(tool, arguments)))

    def wait(self, future: Future[ResultT]) -> ResultT:
        """Wait for something that was begun, and count the time."""
        return self._waited(future.result)

    def _waited(self, wait: Callable[[], ResultT]) -> ResultT:
        began = time.perf_counter()
        try:
            return wait()
        finally:
            self.record.waited += time.perf_counter() - began

    async def call_async(self, tool: ListedTool, arguments: dict[str, Any]) -> Shown:
        """Call a tool from another event loop; see `call`."""
        return await asyncio.wrap_future(self.submit(tool, arguments))

    async def _call(self, record: Record, tool: ListedTool, arguments: dict[str, Any]) -> Shown:
        async with record.turn:
            return await self._play(record, tool, arguments)

    async def _play(self, record: Record, tool: ListedTool, arguments: dict[str, Any]) -> Shown:
        if record.over is not None:
            return record.over
        if record.lost or record.episode is None:
            raise EpisodeFailed(_message(record))
        # Once the episode is over it does not matter what the arguments are; the gateway says so in its own words.
        if record.outcome is None and (problems := tool.arguments.problems(arguments)):
            record.errors += 1
            record.calls.append((tool.name, arguments, InvalidArguments(problems)))
            raise InvalidArguments(self._broken_up(problems))
        try:
            reply = await self._send(record.episode, tool, arguments)
            record.calls.append((tool.name, arguments, reply))
            return self._note(record, reply)
        except EpisodeOver as over:
            return self._over(record, over, tool)
        except (InvalidArguments, ToolError, UnknownTool) as refused:
            record.errors += 1
            if not isinstance(refused, ToolError):
                record.calls.append((tool.name, arguments, refused))
            if isinstance(refused, UnknownTool):
                self.connection.suspect()
            raise
        except Exception as error:
            if record.outcome is not None and isinstance(error, _INFRASTRUCTURE):
                # It had ended before; its reward stands.
                record.over = f"The episode is over and takes no more calls. {record.outcome.message}"
                return record.over
            self._lose(record, error, f"broke off in tool {tool.name!r}")
            raise EpisodeFailed(_message(record)) from None

    def _over(self, record: Record, over: EpisodeOver, tool: ListedTool) -> str:
        # If the episode ended by a fault between two calls, this is the first that is heard of it.
        if over.fault is not None and record.outcome is None:
            outcome = lost_to(over)
            if outcome.lost:
                self._lose(record, over, f"had ended before tool {tool.name!r}")
                raise EpisodeFailed(_message(record)) from None
            record.outcome = outcome
        record.over = record.observation = str(over)
        return record.over

    async def _send(self, episode: RolloutEpisode, tool: ListedTool, arguments: dict[str, Any]) -> CallReply:
        self.connection.used(episode)
        try:
            return await self.connection.source.call(episode, tool.name, arguments)
        finally:
            self.connection.used(episode)

    def _note(self, record: Record, reply: CallReply) -> Shown:
        record.count(reply.reward, reply.outcome)
        if reply.outcome is not None and not self.info.scored:
            self._release(record)
        record.observation = self._broken_up(show(reply.content, reply.structured))
        if reply.is_error:
            # TRL shows the model a failure as text, so an image is only named.
            raise ToolError(self._broken_up("\n".join(map(text_of, reply.content))))
        return record.observation

    def legal_calls(self) -> list[LegalCall] | None:
        """The calls that make sense now; `None` if the environment does not say, or cannot be asked."""
        episode = self.record.episode
        if episode is None or self.record.lost:
            return None
        try:
            return self.connection.loop.run(self.connection.source.legal_calls(episode))
        except EnvportError as error:
            logger.warning("the legal calls of %s cannot be told: %s", self.info.name, error)
            return None

    def finish(self) -> Future[None] | None:
        """Start to end the current episode, and to wait for its reward; `None` if that is known already.

        Only where the final state is scored. Other episodes are let go of at the next reset, and say by their outcome
        whether they were played to their end.
        """
        record = self.record
        if not self.info.scored or record.episode is None or record.finished or record.lost:
            return None
        return self.connection.loop.submit(self._finish(record, record.episode))

    def finish_ended(self) -> None:
        """Wait for the reward of the current episode if it has ended."""
        if self.record.outcome is not None and (finishing := self.finish()) is not None:
            self.wait(finishing)

    async def _finish(self, record: Record, episode: RolloutEpisode) -> None:
        async with record.turn:
            if record.finished or record.lost:
                return
            try:
                record.finish(await self.connection.source.finish(episode))
            except Exception as error:
                self._lose(record, error, "could not be scored")
            self._release(record)

    def _broken_up(self, shown: ShownT) -> ShownT:
        """The same without placeholders. They would stand for a picture that is missing, or end a turn."""
        return without_placeholders(shown, self.placeholders) if self.placeholders else shown

    def _lose(self, record: Record, error: Exception, how: str) -> None:
        """Note a fault: the episode's reward will be `None`, which TRL leaves out of the advantages."""
        self.connection.suspect()
        known = isinstance(error, EnvportError)
        logger.error(
            "an episode of %s %s; it is left out of training: %s",
            self.info.name,
            how,
            error if known else repr(error),
            exc_info=None if known else error,
        )
        record.outcome = lost_to(error)

    async def release(self) -> None:
        """Let go of the current episode, once whatever is being done with it has ended."""
        async with self.record.turn:
            self._release(self.record)

    def _release(self, record: Record) -> None:
        if record.episode is not None:
            # A lost episode may still be running at the gateway, so it does not count as ended.
            self.connection.release(record.episode, ended=record.outcome is not None and not record.lost)


class Deferred(list[Any]):
    """Stands for the result of a call that is still being played.

    TRL keeps a list that a tool returns by reference, and reads an empty one as nothing.

    Attributes:
        play: What plays the call.
    """

    def __init__(self, play: Play, future: Future[Shown]):
        super().__init__()
        self.play = play
        self._future = future

    def resolve(self) -> tuple[Shown, bool]:
        """Wait for the call: what TRL makes of its result, and whether it failed."""
        try:
            shown = self.play.wait(self._future)
        except Exception as error:
            return str({"error": str(error)}), True
        return shown, False


def _message(record: Record) -> str:
    if record.outcome is None:
        return "There is no episode: the environment was not reset."
    return f"The episode is over and takes no more calls. {record.outcome.message}"
