"""An MCP server as an environment of envport."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from envport import Environment, Observation, Progress, Step, Task, ToolDefinition, ToolError, ToolHints, UpstreamLost
from envport_envs.mcp_servers.connection import Upstream
from envport_envs.mcp_servers.folders import contents, copy_final, fill
from envport_envs.mcp_servers.scoring import Finished, ServerCall, asks_server, scored
from envport_envs.mcp_servers.sources import Address, Command, EpisodeFolders
from envport_envs.mcp_servers.tasks import Splits, TaskEntry

__all__ = ["McpEnvironment", "McpTaskToolsEnvironment"]

_MOST_NAMED = 50
_NO_TASK = TaskEntry()


class McpEnvironment(Environment):
    """An MCP server, with its own tools.

    Args:
        server: The command or address, as it is shown.
        source: How to start or reach the server.
        listing: The tools that it listed when it was looked at.
        told: The server's instructions.
        tasks: The tasks by split.
        tasks_folder: The folder of the task file.
        content: SHA-256 of the task file.
    """

    runtime = "process"
    call_seconds = 120.0
    reset_seconds = 120.0
    close_seconds = 10.0
    memory_mb = 4_096

    def __init__(
        self,
        server: str,
        source: Command | Address,
        listing: list[dict[str, Any]],
        told: str = "",
        tasks: Splits | None = None,
        tasks_folder: str = "",
        content: str = "",
    ):
        self._source = source
        self._listing = listing
        self._tasks = tasks or {}
        self._tasks_folder = tasks_folder
        self._folders: EpisodeFolders | None = None
        self._upstream: Upstream | None = None
        self._calls: list[ServerCall] = []
        self._entry: TaskEntry | None = None
        self.instructions = told or "Use the tools to do what you are asked."

    @cached_property
    def _entries(self) -> Mapping[str, TaskEntry]:
        return {entry.id: entry for entries in self._tasks.values() for entry in entries}

    def splits(self) -> Mapping[str, Sequence[Task]]:
        """The tasks of the task file."""
        return {split: _Tasks(entries) for split, entries in self._tasks.items()}

    @contextmanager
    def prepare(self) -> Generator[str]:
        """Make the folder that holds those of all episodes. With it goes what is left of episodes that were killed."""
        with tempfile.TemporaryDirectory(prefix="envport-mcp-", ignore_cleanup_errors=True) as folder:
            Path(folder).chmod(0o711)
            yield folder

    def tool_definitions(self) -> list[ToolDefinition]:
        """The server's tools."""
        return [_definition_of(tool) for tool in self._listing]

    async def reset(self, *, seed: int, task: Task | None) -> Observation:
        """Start the server with the task's files, and name them."""
        self._entry = entry = self._entry_of(task) if task is not None else _NO_TASK
        self._folders = folders = EpisodeFolders.make(self.prepared)
        files = fill(folders.work, entry)
        self._upstream = await Upstream.open(self._source, folders, seed, self.secrets)
        self._require_same(await self._upstream.tools())
        return _named(files)

    async def forward(self, name: str, arguments: Mapping[str, Any], progress: Progress) -> Observation | Step:
        """Pass a call on to the server."""
        try:
            observation, is_error = await self._running().call(name, arguments, progress)
        except UpstreamLost:
            if self._ends:
                await self._end()
                return Step("The server has ended.", terminated=True)
            raise
        self._calls.append(ServerCall(name, arguments, observation, is_error))
        if is_error:
            raise _refusal(observation)
        return observation

    async def score(self) -> Any:
        """Score the final state as the task file says. A server that was started is ended before."""
        if self._entry is None or (score := self._entry.score) is None:
            return None
        if self._upstream is not None and not self._ends:
            # One that has died since its last answer is a fault, whatever its folder looks like.
            await self._upstream.tools()
        if not asks_server(score):
            await self._end()
        finished = Finished(self._entry.task(), self._final(), self._calls, self._ask)
        sandbox = isinstance(self._source, Command) and self._source.sandbox
        return await scored(score, finished, sandbox=sandbox, tasks=self._tasks_folder)

    async def final_state(self) -> dict[str, Any]:
        """The files of the working folder by path, for a scoring function outside the environment."""
        await self._end()
        folders = self._final()
        return {"files": contents(folders.final) if folders is not None else {}}

    async def close(self) -> None:
        """End the server, and remove its folder."""
        try:
            await self._end()
        finally:
            if self._folders is not None:
                self._folders.remove()

    async def _end(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            await upstream.close()

    @property
    def _ends(self) -> bool:
        return isinstance(self._source, Command) and self._source.ends

    def _entry_of(self, task: Task) -> TaskEntry:
        # A task says what is run to score it, so that only the file's own are taken.
        entry = self._entries.get(task.id)
        if entry is None or entry.task() != task:
            raise ToolError(
                f"there is no task {task.id!r} in the task file: give the index of a task, or one that it has"
            )
        return entry

    def _running(self) -> Upstream:
        if self._upstream is None:
            raise ToolError("The server has ended.")
        return self._upstream

    async def _ask(self, tool: str, arguments: Mapping[str, Any]) -> Observation:
        if self._upstream is None:
            raise UpstreamLost("the MCP server has ended before it was asked for the final state")
        observation, is_error = await self._upstream.call(tool, arguments)
        if is_error:
            raise UpstreamLost(f"the MCP server refused to answer {tool!r} for the score: {observation.text}")
        return observation

    def _final(self) -> EpisodeFolders | None:
        if isinstance(self._source, Address) or self._folders is None:
            return None
        copy_final(self._folders.work, self._folders.final)
        return self._folders

    def _require_same(self, listing: list[dict[str, Any]]) -> None:
        """Refuse a server whose tools are not those that were looked at: players are shown those."""
        shown = {tool["name"]: tool for tool in listing}
        for tool in self._listing:
            if shown.get(tool["name"]) != tool:
                raise UpstreamLost(
                    f"the MCP server has another tool {tool['name']!r} now than when it was looked at; start the "
                    "gateway again to serve its present tools"
                )


class McpTaskToolsEnvironment(McpEnvironment):
    """An MCP server whose tasks show some of its tools each."""

    def tools_for(self, task: Task) -> list[str] | None:
        """The tools that the task file shows for the task."""
        tools = self._entry_of(task).tools
        return None if tools is None else [*tools]


def _definition_of(tool: Mapping[str, Any]) -> ToolDefinition:
    """A server's tool, with its schemas untouched."""
    annotations = tool.get("annotations", {})
    hints = ToolHints(
        title=tool.get("title", annotations.get("title")),
        read_only=annotations.get("readOnlyHint"),
        destructive=annotations.get("destructiveHint"),
        idempotent=annotations.get("idempotentHint"),
        open_world=annotations.get("openWorldHint"),
    )
    return ToolDefinition(
        name=tool["name"],
        input_schema=tool["inputSchema"],
        method="forward",
        description=tool.get("description", ""),
        output_schema=tool.get("outputSchema"),
        hints=hints,
    )


class _Tasks(Sequence[Task]):
    """Entries as tasks, made when they are asked for."""

    def __init__(self, entries: Sequence[TaskEntry]):
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: Any) -> Any:
        return cast("TaskEntry", self._entries[index]).task()


def _refusal(observation: Observation) -> ToolError:
    """The server's error, as the player gets it."""
    first, *more = observation.content or ({"type": "text", "text": "The server refused the call."},)
    if first["type"] != "text":
        return ToolError("The server refused the call.", content=observation)
    left = Observation(content=tuple(more), structured_content=observation.structured_content)
    return ToolError(first["text"], content=left if more or left.structured_content is not None else None)


def _named(files: Sequence[str]) -> Observation:
    if not files:
        return Observation()
    more = f" and {len(files) - _MOST_NAMED} more" if len(files) > _MOST_NAMED else ""
    text = f"Your working folder has these files: {', '.join(files[:_MOST_NAMED])}{more}."
    return Observation(content=({"type": "text", "text": text},))
