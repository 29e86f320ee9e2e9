"""OpenEnv's own clients, as a program for a virtual environment of OpenEnv's.

Run as `openenv_client.py URL MOVES`: plays one episode of `catch` for each client, asynchronous and synchronous, and
writes what each one saw as a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from unittest.mock import MagicMock

# OpenEnv draws web pages with gradio, which takes most of the time to import.
sys.modules["gradio"] = sys.modules["gradio.themes"] = MagicMock()

from openenv.core.generic_client import GenericEnvClient  # noqa: E402
from openenv.core.mcp_client import MCPToolClient  # noqa: E402

try:
    from openenv.core.env_server.mcp_types import CallToolAction
except ImportError:
    from openenv.core.mcp_types import CallToolAction

SEED = 3


def text_of(seen: Any) -> str | None:
    """The text of an observation; `None` where the client of an old release drops it."""
    if isinstance(seen, dict):
        return seen["text"]
    result = getattr(seen, "result", None)
    return result["data"] if result is not None else getattr(seen, "text", None)


def told(client: str, results: list[Any], state: Any, **more: Any) -> None:
    first, *steps = results
    seen = [result.observation for result in results]
    texts = [text_of(one) for one in seen]
    count = state["step_count"] if isinstance(state, dict) else state.step_count
    line = {"client": client, "texts": texts, "rewards": [step.reward for step in steps], "done": steps[-1].done}
    print(json.dumps({**line, "first_reward": first.reward, "steps": count, **more}), flush=True)


async def generic(url: str, moves: list[str]) -> None:
    async with GenericEnvClient(base_url=url) as client:
        results = [await client.reset(seed=SEED)]
        results += [await client.step({"direction": move}) for move in moves]
        try:
            refused = str(await client.step({"direction": moves[0]}))
        except RuntimeError as error:
            refused = str(error)
        told("GenericEnvClient", results, await client.state(), refused=refused)


def generic_sync(url: str, moves: list[str]) -> None:
    with GenericEnvClient(base_url=url).sync() as client:
        results = [client.reset(seed=SEED)]
        for move in moves:
            action = {"type": "call_tool", "tool_name": "move", "arguments": {"direction": move}}
            results.append(client.step(action))
        told("GenericEnvClient.sync", results, client.state())


async def tools(url: str, moves: list[str]) -> None:
    async with MCPToolClient(base_url=url) as client:
        results = [await client.reset(seed=SEED)]
        listed = await client.list_tools()
        for move in moves[:-1]:
            action = CallToolAction(tool_name="move", arguments={"direction": move})
            results.append(await client.step(action))
        data = await client.call_tool("move", direction=moves[-1])
        schemas = [tool.input_schema for tool in listed]
        told("MCPToolClient", results, await client.state(), data=data, schemas=schemas)


def main(url: str, moves: str) -> None:
    """Play."""
    asyncio.run(generic(url, moves.split(",")))
    generic_sync(url, moves.split(","))
    asyncio.run(tools(url, moves.split(",")))


if __name__ == "__main__":
    main(*sys.argv[1:])
