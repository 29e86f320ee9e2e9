"""The MCP servers of an environment: for an open episode, and for clients that start episodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from envport.blocks import ContentBlock
from envport.definition import EnvironmentDefinition
from envport.episodes import EpisodeTable, Found, Opening, OpenRequest, tool_error, tool_result, while_connected
from envport.errors import (
    EnvportError,
    EpisodeFailed,
    InvalidArguments,
    InvalidRequest,
    UnknownEpisode,
    UnknownTool,
)
from envport.mcp.exact import ExactResults, Listing
from envport.mcp.listings import start_episode_tool, with_episode_id
from envport.mcp.openings import opening_blocks, prompt_messages
from envport.mcp.players import FixedEpisode, Player, PlayerOf, SessionEpisodes, ToolRequest
from envport.mcp.progress import playing
from envport.telemetry.mcp_server import WhenTraced
from envport.tools.arguments import schema_problems
from envport.tools.dialects import validator_of
from envport.tools.toolset import EPISODE_ID, START_EPISODE, Toolset
from envport.types import Choice

__all__ = ["EnvironmentServer", "EpisodeServer", "FixedServer", "GoneServer", "SharedServer"]

Context = ServerRequestContext[Any, Any]

_PROMPT = "task"


class EnvironmentServer:
    """Base class of the servers: a tool listing, a prompt, and tool calls whose errors the model can read."""

    name = "envport"
    version = ""
    tools: list[dict[str, Any]]

    def __init__(self, player_of: PlayerOf) -> None:
        self._player_of = player_of
        self._schemas: dict[str, dict[str, Any]] = {tool["name"]: tool["inputSchema"] for tool in self.tools}
        # On every call, the SDK searches the schema for arguments that are repeated in headers. Most tools have none,
        # so it gets only the schemas that do.
        self._routed = {name: schema for name, schema in self._schemas.items() if _names_headers(schema)}
        self.server: Server[Any] = Server(self.name, version=self.version, get_tool_input_schema=self._routed.get)
        self.server.add_request_handler("tools/list", types.PaginatedRequestParams, self._list_tools)
        self.server.add_request_handler("tools/call", types.CallToolRequestParams, self._call_tool)
        self.server.add_request_handler("prompts/list", types.PaginatedRequestParams, self._list_prompts)
        self.server.add_request_handler("prompts/get", types.GetPromptRequestParams, self._get_prompt)
        self.server_info: dict[str, Any] = self.server.server_info.model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        self.server.middleware[:] = [WhenTraced(middleware) for middleware in self.server.middleware]
        self._exact = ExactResults(self._exact_listing, self.server_info, self._exact_instructions)
        self.server.middleware.append(self._exact)

    def reads_headers(self, tool: str) -> bool:
        """Whether some arguments of a tool are repeated in headers."""
        return tool in self._routed

    @cached_property
    def written_listing(self) -> bytes | None:
        """The result of `tools/list` as JSON, if it is the same for every player."""
        listing = self.same_listing
        return self._exact.written(listing) if listing is not None else None

    @property
    def same_listing(self) -> Listing | None:
        """The tool listing, if it is the same for every player."""
        return Listing(self.tools)

    async def listing(self, player: Player) -> Listing:
        """The tool listing for a player."""
        listing = self.same_listing
        assert listing is not None
        return listing

    async def instructions(self, player: Player) -> str | None:
        """The server's instructions for the model."""
        raise NotImplementedError

    async def play(self, request: ToolRequest, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out a tool call."""
        raise NotImplementedError

    async def call(self, request: ToolRequest, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out a tool call, and answer what is wrong with it as a tool error.

        Raises:
            UnknownTool: There is no such tool.
        """
        try:
            return await self.play(request, tool, arguments)
        except UnknownTool:
            raise
        except EnvportError as error:
            return tool_error(error)

    async def prompt(self, player: Player) -> list[dict[str, Any]]:
        """The messages of the prompt."""
        raise NotImplementedError

    async def _exact_listing(self, ctx: Context) -> Listing:
        return await self.listing(self._player_of(ctx))

    async def _exact_instructions(self, ctx: Context) -> str | None:
        return await self.instructions(self._player_of(ctx))

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams) -> types.ListToolsResult:
        _refuse_cursor(params)
        # ExactResults adds the tools. This result only has to pass the SDK's validation.
        return types.ListToolsResult(tools=[])

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        meta: Mapping[str, Any] = ctx.meta or {}
        report = ctx.session.report_progress if "progress_token" in meta else None
        request = ToolRequest(self._player_of(ctx), meta, _receiving(ctx), report)
        try:
            return await self.call(request, params.name, params.arguments or {})
        except UnknownTool as error:
            raise MCPError(code=types.INVALID_PARAMS, message=str(error)) from None

    async def _list_prompts(self, ctx: Context, params: types.PaginatedRequestParams) -> types.ListPromptsResult:
        _refuse_cursor(params)
        return types.ListPromptsResult(prompts=[types.Prompt(name=_PROMPT, description="What to do here.")])

    async def _get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name != _PROMPT:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown prompt: {params.name}; there is {_PROMPT!r}")
        try:
            messages = await self.prompt(self._player_of(ctx))
        except EnvportError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=str(error)) from None
        return types.GetPromptResult.model_validate({"messages": messages})


def _receiving(ctx: Context) -> Any:
    """The ASGI receive channel of the request; `None` if it came over stdio."""
    return ctx.request.receive if ctx.request is not None else None


def _names_headers(schema: dict[str, Any]) -> bool:
    return '"x-mcp-header"' in json.dumps(schema)


def _episode_of(player: Player) -> Found:
    if player.episode is None:
        raise UnknownEpisode
    return player.episode


def _refuse_cursor(params: types.PaginatedRequestParams) -> None:
    if params.cursor is not None:
        raise MCPError(code=types.INVALID_PARAMS, message="Unknown cursor: the list has one page")


class EpisodeServer(EnvironmentServer):
    """The server of an open episode. It lists exactly the episode's tools.

    Args:
        spec: The environment.
        table: The table of episodes.
        player_of: Finds the caller and the episode of a request.
    """

    def __init__(self, spec: EnvironmentDefinition, table: EpisodeTable, player_of: PlayerOf):
        self.name, self.version = spec.name, spec.cls.version
        # Where tools depend on the task, a name does not say which schema is meant, so no headers are compared.
        self.tools = [] if spec.tools_vary else spec.listing
        self._tools_vary = spec.tools_vary
        self._table = table
        super().__init__(player_of)

    @property
    def same_listing(self) -> Listing | None:
        """The tools of the environment, unless they depend on the task."""
        return None if self._tools_vary else super().same_listing

    async def listing(self, player: Player) -> Listing:
        """The tools of the environment, or of the episode's task."""
        if not self._tools_vary:
            return await super().listing(player)
        try:
            opening = await self._table.opening(_episode_of(player))
        except (UnknownEpisode, EpisodeFailed):
            # It was closed or lost after the address was looked up.
            return Listing([], lasting=False)
        # A reset with another task changes the tools at the same address.
        return Listing(opening.tools.listing, lasting=False)

    async def instructions(self, player: Player) -> str | None:
        """The task's prompt and the first observation."""
        opening = await self._table.opening(_episode_of(player))
        return "\n\n".join(filter(None, (opening.prompt, opening.observation.text)))

    async def play(self, request: ToolRequest, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call the tool in the episode."""
        episode = _episode_of(request.player)
        result = await playing(request, self._table, episode, tool, arguments)
        return tool_result(result)

    async def prompt(self, player: Player) -> list[dict[str, Any]]:
        """The task's prompt and the first observation."""
        opening = await self._table.opening(_episode_of(player))
        return prompt_messages(opening.prompt, opening.observation)


class FixedServer(EnvironmentServer):
    """The server of a process that plays one episode. The episode begins at the first call.

    Args:
        spec: The environment.
        table: The table of episodes.
        player_of: Finds the caller of a request.
        fixed: The episode.
        tools: The tools of the episode.
        prompt: The instructions for the player.
    """

    def __init__(
        self,
        spec: EnvironmentDefinition,
        table: EpisodeTable,
        player_of: PlayerOf,
        fixed: FixedEpisode,
        tools: Toolset,
        prompt: str,
    ):
        self.name, self.version = spec.name, spec.cls.version
        self.tools = tools.listing
        self._toolset = tools
        self._table = table
        self._fixed = fixed
        self._prompt = prompt
        super().__init__(player_of)

    async def instructions(self, player: Player) -> str | None:
        """The task's prompt; the episode has not begun yet."""
        return f"{self._prompt}\n\nThe first result begins with the first observation.".strip()

    async def play(self, request: ToolRequest, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call the tool in the episode."""
        if tool not in self._schemas:
            raise UnknownTool(f"Unknown tool: {tool}")
        opening = await self._fixed.get()
        before = opening.observation.content if self._fixed.take_opening() else ()
        try:
            found = self._table.find(opening.handle, self._fixed.principal)
            result = await playing(request, self._table, found, tool, arguments)
            return tool_result(result, before, self._toolset.tools[tool])
        except EnvportError as error:
            return tool_error(error, before)

    async def prompt(self, player: Player) -> list[dict[str, Any]]:
        """The task's prompt and the first observation."""
        opening = await self._fixed.get()
        return prompt_messages(opening.prompt, opening.observation)


class SharedServer(EnvironmentServer):
    """The server for clients that start episodes: `start_episode`, and the tools with an added `episode_id`.

    Args:
        spec: The environment.
        table: The table of episodes.
        player_of: Finds the caller of a request.
        lasting: Whether the environment stays the same, so that clients may keep its listing for a while.
    """

    def __init__(self, spec: EnvironmentDefinition, table: EpisodeTable, player_of: PlayerOf, *, lasting: bool = True):
        self.name, self.version = spec.name, spec.cls.version
        self._spec = spec
        self._lasting = lasting
        self._table = table
        self._idle_seconds = table.limits.idle_seconds
        self._sessions = SessionEpisodes()
        start = start_episode_tool(spec, self._idle_seconds)
        self._start_schema = validator_of(start["inputSchema"])
        self.tools = [start, *(with_episode_id(tool) for tool in spec.listing)]
        super().__init__(player_of)

    @property
    def same_listing(self) -> Listing | None:
        """The tools of the environment, and `start_episode`."""
        return Listing(self.tools, lasting=self._lasting)

    async def instructions(self, player: Player) -> str | None:
        """The environment's instructions, and how to start an episode."""
        return (
            f"{self._spec.instructions}\n\nCall {START_EPISODE} to begin: it returns an {EPISODE_ID} and the first "
            f"observation. Pass the {EPISODE_ID} in every call. "
            f"An episode expires after {self._idle_seconds / 60:g} minutes without a call."
        ).strip()

    async def prompt(self, player: Player) -> list[dict[str, Any]]:
        """The environment's instructions, and how to start an episode."""
        return prompt_messages(await self.instructions(player) or "", None)

    async def play(self, request: ToolRequest, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Start an episode, or call a tool in the episode that the arguments or the session name."""
        if tool == START_EPISODE:
            return await self._start(request, arguments)
        if tool not in self._schemas and self._lasting:
            raise UnknownTool(f"Unknown tool: {tool}")
        arguments = dict(arguments)
        handle = arguments.pop(EPISODE_ID, None)
        if handle is not None and not isinstance(handle, str):
            raise InvalidArguments(f"Argument {EPISODE_ID!r} has to be a string, as {START_EPISODE} returned it.")
        found, before = await self._find(request, handle, tool, arguments)
        if tool not in found.spec.tools:
            raise UnknownTool(f"Unknown tool: {tool}")
        try:
            result = await playing(request, self._table, found, tool, arguments)
            return tool_result(result, before, found.spec.tools[tool])
        except EnvportError as error:
            return tool_error(error, before)

    async def _start(self, request: ToolRequest, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if problems := schema_problems(self._start_schema, arguments):
            raise InvalidArguments(problems)
        opening = await self._open(request, arguments)
        return {
            "content": opening_blocks(opening, self._idle_seconds),
            "isError": False,
            "resultType": "complete",
            "_meta": {"envport/episode_id": opening.handle},
        }

    async def _open(self, request: ToolRequest, arguments: Mapping[str, Any]) -> Opening:
        if self._table.environment(self._spec.name) is not self._spec:
            raise InvalidRequest(
                "This environment has changed since you connected, and its tools may have, too: connect again to start "
                "an episode. One that you have started can be played to its end."
            )
        player = request.player
        name = player.principal.name
        asked = OpenRequest(self._spec.name, name, Choice(**arguments))
        opening = await while_connected(
            request.receive,
            partial(self._table.open, asked),
            lambda unread: self._table.close(unread.handle, name),
            request.leaving,
        )
        self._sessions.remember(player.session, opening.handle)
        return opening

    async def _find(
        self, request: ToolRequest, handle: str | None, tool: str, arguments: Mapping[str, Any]
    ) -> tuple[Found, list[ContentBlock]]:
        player = request.player
        known = handle if handle is not None else self._sessions.get(player.session)
        if known is None:
            if player.session is None:
                raise InvalidRequest(
                    f"No episode is named: call {START_EPISODE} first and pass the {EPISODE_ID} that it returns."
                )
            # Check the call first, so that a refused one starts no episode.
            if tool not in self._schemas:
                raise UnknownTool(f"Unknown tool: {tool}")
            self._spec.tools[tool].bind(arguments)
            opening = await self._open(request, {})
            found = Found(opening.handle, player.principal.name, self._spec)
            return found, opening_blocks(opening, self._idle_seconds)
        found = self._table.find(known, player.principal.name)
        # It may be of one that was replaced.
        if found.spec.name != self._spec.name:
            raise UnknownEpisode
        self._sessions.remember(player.session, known)
        return found, []


class GoneServer(EnvironmentServer):
    """Answers for an episode that is unknown, expired, closed or another principal's, in the same way for all.

    Args:
        player_of: Finds the caller of a request.
    """

    def __init__(self, player_of: PlayerOf) -> None:
        self.tools = []
        super().__init__(player_of)

    async def instructions(self, player: Player) -> str | None:
        """The message that there is no such episode."""
        return str(UnknownEpisode())

    async def play(self, request: ToolRequest, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse."""
        raise UnknownEpisode

    async def prompt(self, player: Player) -> list[dict[str, Any]]:
        """Refuse."""
        raise UnknownEpisode
