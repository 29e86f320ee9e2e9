"""An environment of an Open Reward Standard server as an environment of envport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envport import Environment, Observation, Step, Task, ToolDefinition, ToolError, UpstreamLost
from envport.tools.writable import why_unwritable
from envport_envs.ors.outputs import step_of
from envport_envs.ors.server import WHAT, OrsServer
from envport_envs.ors.session import PING_SECONDS, OrsSession
from envport_envs.ors.tasks import RemoteTasks, SplitTasks, created_with
from envport_envs.ors.tools import OrsListing, definitions_of, listing_of
from envport_envs.upstream.faults import CallRaised, Exceptions, ServerFull

__all__ = [
    "OrsEnvironment",
    "OrsLastRewardEnvironment",
    "OrsTaskToolsEnvironment",
    "OrsTaskToolsLastRewardEnvironment",
]


class OrsEnvironment(Environment):
    """An environment of an Open Reward Standard server.

    Args:
        server: The server, as it is shown.
        at: How to reach it.
        listing: The tools that it listed when it was looked at.
        tasks: The tasks by split.
        exceptions: What an exception of a tool is; see `ors`.
        ping_seconds: Seconds between two pings.
    """

    remote_tasks = True
    close_seconds = 15.0
    instructions = "Use the tools to do what you are asked."

    def __init__(
        self,
        server: str,
        at: OrsServer,
        listing: OrsListing,
        tasks: Mapping[str, SplitTasks],
        exceptions: Exceptions = "fault",
        ping_seconds: float = PING_SECONDS,
    ):
        self._at = at
        self._listing = listing
        self._tasks = tasks
        self._exceptions: Exceptions = exceptions
        self._ping_seconds = ping_seconds
        self._session: OrsSession | None = None

    def splits(self) -> Mapping[str, Sequence[Task]]:
        """The tasks of the server."""
        return {split: self._split(split, tasks) for split, tasks in self._tasks.items()}

    def tool_definitions(self) -> list[ToolDefinition]:
        """The tools of the server."""
        return definitions_of(self._listing)

    async def reset(self, *, seed: int, task: Task | None) -> Observation:
        """Open a session, and ask for its prompt. The standard has no seeds: the task says everything."""
        created = created_with(task, self._tasks)
        self._session = session = OrsSession(self._at, self.secrets, self._ping_seconds)
        try:
            await session.open(created)
            self._require_same(await session.tools(), task)
            return await session.prompt()
        except ServerFull as full:
            raise full.refusal(WHAT) from None

    async def forward(self, name: str, arguments: Mapping[str, Any]) -> Step[Observation]:
        """Call a tool."""
        if self._session is None:
            raise UpstreamLost(f"the session at the {WHAT} has ended")
        if (why := why_unwritable(arguments)) is not None:
            raise ToolError(f"The arguments cannot be sent: {why}.")
        try:
            return step_of(await self._session.call(name, arguments))
        except CallRaised as raised:
            if self._exceptions == "refusal":
                raise ToolError(str(raised)) from None
            raise

    async def close(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _split(self, split: str, tasks: SplitTasks) -> Sequence[Task]:
        return RemoteTasks(self._at, split, tasks)

    def _own_tools(self, task: Task | None) -> OrsListing:
        return self._listing

    def _require_same(self, listing: OrsListing, task: Task | None) -> None:
        """Refuse a session whose tools are not those that were told: players are shown those."""
        if listing != self._own_tools(task):
            raise UpstreamLost(
                f"the {WHAT} lists other tools for the task than those that were told. If its tasks have tools of "
                "their own, give the option task_tools=true; if the server has changed, start the gateway again"
            )


class OrsTaskToolsEnvironment(OrsEnvironment):
    """An environment of an Open Reward Standard server, whose tools depend on the task."""

    def tools_for(self, task: Task) -> list[ToolDefinition]:
        """The tools of a task, which were read with it."""
        return definitions_of(self._own_tools(task))

    def _split(self, split: str, tasks: SplitTasks) -> Sequence[Task]:
        return RemoteTasks(self._at, split, tasks, own_tools=True)

    def _own_tools(self, task: Task | None) -> OrsListing:
        try:
            return listing_of({"tools": task.metadata.get("task_tools") if task is not None else None})
        except UpstreamLost:
            named = "" if task is None else f"The task {task.id!r} names no tools: "
            raise ToolError(f"{named}give the index of a task of a split.") from None


class OrsLastRewardEnvironment(OrsEnvironment):
    """An environment of an Open Reward Standard server, whose last reward is that of the episode."""

    reward = "last"


class OrsTaskToolsLastRewardEnvironment(OrsTaskToolsEnvironment):
    """An environment whose tools depend on the task, and whose last reward is that of the episode."""

    reward = "last"
