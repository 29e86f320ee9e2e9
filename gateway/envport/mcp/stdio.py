"""An environment as an MCP server on standard input and output, for clients that spawn a process."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from typing import Any, cast

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from envport.access import ANYONE
from envport.definition import EnvironmentDefinition
from envport.environment import RuntimeKind
from envport.episodes import Episodes, EpisodeTable, Limits, OpenRequest, WatchedTable, resolve
from envport.mcp.draining import Exchange, StandardInput, end_on_sigterm
from envport.mcp.players import FixedEpisode, Player
from envport.mcp.servers import FixedServer, SharedServer
from envport.types import Choice

__all__ = ["serve_stdio"]


def _the_process(ctx: ServerRequestContext[Any, Any]) -> Player:
    return Player(ANYONE, None, session="stdio")


async def serve_stdio(
    spec: EnvironmentDefinition,
    *,
    limits: Limits | None = None,
    split: str | None = None,
    task: int | None = None,
    seed: int | None = None,
    runtime: RuntimeKind | None = None,
    drain_seconds: float = 15.0,
) -> None:
    """Serve until standard input ends, or until SIGTERM. What the environment prints goes to standard error.

    If `split`, `task` or `seed` is given, the process plays one fixed episode and lists exactly the environment's
    tools. Otherwise the player starts episodes.

    Args:
        spec: The environment.
        limits: Limits on episodes.
        split: Split of the task.
        task: Index of the task.
        seed: The seed.
        runtime: The runtime of the environment. If not given, it runs in the runtime that it declares.
        drain_seconds: After SIGTERM, how long to wait for running calls to be answered.

    Raises:
        UnknownTask: There is no such split or task.
        InvalidRequest: The environment has no tasks, or the seed is out of range.
    """
    table = WatchedTable(Episodes({spec.name: spec}, limits, runtime=runtime))
    # Created outside `table.run()`, whose task group would wrap an error in an exception group.
    server = _server(spec, table, Choice(split, task, seed))
    options = server.create_initialization_options()
    if sys.platform == "win32":
        # Windows has no SIGTERM to catch.
        async with table.run(), stdio_server() as (read, write):
            with _prints_to_standard_error():
                await server.run(read, write, options)
        return
    source = StandardInput()
    # The SDK only iterates over the lines.
    lines = cast("anyio.AsyncFile[str]", source.lines)
    async with table.run(), stdio_server(lines) as (read, write), anyio.create_task_group() as tasks:
        exchange = Exchange(read, write)
        await tasks.start(end_on_sigterm, table, exchange, source, drain_seconds)
        with _prints_to_standard_error():
            await server.run(exchange.read, exchange.write, options)
        tasks.cancel_scope.cancel()


@contextmanager
def _prints_to_standard_error() -> Generator[None]:
    """While the SDK has standard output, which is the client's, print to standard error."""
    before = sys.stdout
    with redirect_stdout(sys.stderr):
        try:
            yield
        finally:
            # It may hold what was printed while the environment was loaded. Once the SDK gives standard output back,
            # that would be written to the client.
            before.flush()


def _server(spec: EnvironmentDefinition, table: EpisodeTable, choice: Choice) -> Server[Any]:
    if choice == Choice():
        return SharedServer(spec, table, _the_process).server
    start = resolve(spec, choice)
    # What was drawn is kept, so that the episode has the task whose prompt is shown.
    drawn = Choice(start.split, start.task_index, start.seed)
    fixed = FixedEpisode(table, OpenRequest(spec.name, ANYONE.name, drawn))
    return FixedServer(spec, table, _the_process, fixed, start.tools, spec.prompt(start.task)).server
