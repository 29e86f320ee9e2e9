"""The interface between the surfaces and the episodes, which may run in this process or on other machines."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from envport.definition import EnvironmentDefinition
from envport.episodes.limits import Limits
from envport.episodes.play import CallResult
from envport.episodes.readiness import Preparation
from envport.episodes.requests import OpenRequest
from envport.runtimes import ProgressSink
from envport.telemetry.subject import NO_LABELS
from envport.tools.toolset import Toolset
from envport.types import Choice, EpisodeInfo, LegalCall, Observation, Task, Trajectory

__all__ = ["EpisodeTable", "Found", "Opening"]


class Found(NamedTuple):
    """An episode that a principal may play.

    Attributes:
        handle: The id that clients use.
        principal: Name of the principal that owns it.
        spec: The environment.
        labels: Its labels, for log lines, if they are known here.
    """

    handle: str
    principal: str
    spec: EnvironmentDefinition
    labels: Mapping[str, str] = NO_LABELS


class Opening(NamedTuple):
    """What the caller gets when an episode begins.

    Attributes:
        handle: The id that clients use.
        spec: The environment.
        prompt: What the player is told to do.
        observation: The first observation.
        seed: The seed in use.
        tools: The tools of the episode.
        task: The task, if the environment has tasks.
    """

    handle: str
    spec: EnvironmentDefinition
    prompt: str
    observation: Observation
    seed: int
    tools: Toolset
    task: Task | None


class EpisodeTable(Protocol):
    """All episodes of a gateway, by handle.

    Every method raises `UnknownEpisode` for an episode that does not belong to the principal.
    """

    @property
    def environments(self) -> Mapping[str, EnvironmentDefinition]:
        """The environments that are served, by name."""
        ...

    @property
    def limits(self) -> Limits:
        """Limits on episodes."""
        ...

    @property
    def replicated(self) -> bool:
        """Whether other gateways serve the same episodes."""
        ...

    @property
    def live(self) -> int:
        """How many episodes hold resources."""
        ...

    @property
    def draining(self) -> bool:
        """Whether this gateway refuses new episodes."""
        ...

    @property
    def preparations(self) -> Mapping[str, Preparation]:
        """The preparation status of each environment, by name."""
        ...

    def take_no_more(self) -> None:
        """Refuse new episodes from now on, including waiting requests. Open episodes can still be played."""
        ...

    async def drain(self, seconds: float) -> None:
        """Refuse new episodes, and wait until the episodes that would be lost with this gateway have ended.

        Args:
            seconds: How long to wait. Episodes that are still running after this are ended.
        """
        ...

    def run(self) -> AbstractAsyncContextManager[None]:
        """Run the background tasks."""
        ...

    def environment(self, name: str) -> EnvironmentDefinition:
        """The environment of that name.

        Raises:
            UnknownEnvironment: It is not served.
        """
        ...

    async def open(self, request: OpenRequest) -> Opening:
        """Open an episode and reset its environment.

        Raises:
            UnknownEnvironment: The environment is not served.
            UnknownTask: It has no such split or task.
            InvalidRequest: The seed or the task is malformed.
            AtCapacity: No place became free in time.
            Draining: This gateway refuses new episodes.
            EpisodeFailed: The environment broke.
        """
        ...

    def opens_at_once(self, environment: str, principal: str) -> bool:
        """Whether an episode would be opened now, or refused, without waiting for anything."""
        ...

    def find(self, handle: str, principal: str) -> Found:
        """Find an episode by its handle, to play it."""
        ...

    async def opening(self, found: Found) -> Opening:
        """The prompt, first observation, seed and tools of the episode."""
        ...

    async def call(
        self,
        found: Found,
        tool: str,
        arguments: Mapping[str, Any],
        progress: ProgressSink | None = None,
        call_id: str | None = None,
    ) -> CallResult:
        """Call a tool. Calls of one episode run one after the other.

        Args:
            found: The episode.
            tool: Name of the tool.
            arguments: The arguments as parsed JSON.
            progress: Where the tool's progress goes.
            call_id: Id of the call. A client that missed the answer can send the call again with the same id: the
                latest call of an episode is played once, however often it is sent.

        Raises:
            UnknownTool: The episode has no such tool.
            InvalidRequest: The latest call had this id, but another tool or other arguments.
            EpisodeOver: The episode has ended.
            EpisodeBusy: An earlier call is still running, although its caller has left.
            InvalidArguments: The arguments break the schema; the environment was not touched.
            EpisodeFailed: The environment broke; the episode has ended as failed.
        """
        ...

    def at_once(self, found: Found) -> bool:
        """Whether a call would be answered now without waiting for anything, so that nobody has to watch its caller.

        The same holds for its state, for closing it, and for finishing it if its final state is not scored.
        """
        ...

    async def legal_calls(self, found: Found) -> list[LegalCall] | None:
        """The calls that make sense now; `None` if the environment does not say. Never for the player.

        Raises:
            EpisodeOver: The episode has ended.
            EpisodeFailed: The environment broke; the episode has ended as failed.
        """
        ...

    async def info(self, handle: str, principal: str) -> EpisodeInfo:
        """The state of an episode. Closed and expired episodes are found too, while they are remembered."""
        ...

    async def list_episodes(self, principal: str, labels: Mapping[str, str], limit: int) -> list[EpisodeInfo]:
        """The principal's episodes that have these labels, the newest first. Ended ones while they are remembered.

        Args:
            principal: Name of the principal.
            labels: The labels that an episode has to have, with their values.
            limit: The most episodes to return.
        """
        ...

    async def keep_alive(self, found: Found) -> EpisodeInfo:
        """Restart the idle timer of an episode."""
        ...

    async def reset(self, found: Found, choice: Choice) -> Opening:
        """Start an episode over. It keeps its task and seed unless others are given.

        Raises:
            UnknownTask: There is no such split or task.
            AtCapacity: The episode had ended, and there is no room for another live one.
            Draining: The episode had ended, and this gateway refuses new episodes.
            EpisodeFailed: The environment broke.
        """
        ...

    async def close(self, handle: str, principal: str) -> EpisodeInfo:
        """Close an episode now. Its environment is freed as soon as no call is running in it."""
        ...

    async def fork(
        self, handle: str, principal: str, step: int | None = None, labels: Mapping[str, str] | None = None
    ) -> Opening:
        """Open a copy of an episode, which goes on by itself.

        The episode may be live, in which case the running call is waited for, or one that only the store remembers. The
        copy has the same task and seed. It is made from a snapshot if the environment has them and all calls are to be
        copied of a live episode, or else by playing the calls again, if the environment is deterministic.

        Args:
            handle: The episode.
            principal: Name of the principal, which has to own it and will own the copy.
            step: How many of its calls the copy begins with; all of them if not given.
            labels: The labels of the copy; those of the episode if not given.

        Returns:
            The copy. Its observation is what the player saw last.

        Raises:
            InvalidRequest: There are fewer calls, the last of them ended the episode, or it cannot be copied.
            AtCapacity: No place became free in time.
            Draining: This gateway refuses new episodes.
            EpisodeFailed: The environment broke, or gave something else when the calls were played again.
        """
        ...

    async def finish(self, handle: str, principal: str) -> EpisodeInfo:
        """End an episode, because its player has stopped, and wait until its reward is known.

        The running call is waited for. An episode that has ended keeps its outcome, however often this is called.
        """
        ...

    async def trajectory(self, handle: str, principal: str) -> Trajectory:
        """The trajectory of an episode."""
        ...
