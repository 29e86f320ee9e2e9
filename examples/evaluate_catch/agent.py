"""An agent: a program that speaks MCP through the SDK, and catches the ball.

It is started with an MCP address as its argument and a token in ENVPORT_TOKEN; it knows nothing of who started it.
"""

from __future__ import annotations

import os
import re
import sys

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

POSITIONS = re.compile(r"Ball in column (\d+), paddle in column (\d+)")


def towards_the_ball(board: str) -> str:
    found = POSITIONS.search(board)
    assert found is not None, board
    ball, paddle = map(int, found.groups())
    return "stay" if ball == paddle else "right" if ball > paddle else "left"


async def play(url: str, token: str | None) -> str:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        # The prompt and the first observation come with the server's instructions.
        board, over = client.instructions or "", False
        while not over:
            result = await client.call_tool("move", {"direction": towards_the_ball(board)})
            assert not result.is_error, result
            board = result.content[0].text
            over = bool(result.meta and result.meta["envport/terminated"])
    return board


if __name__ == "__main__":
    print(anyio.run(play, sys.argv[1], os.environ.get("ENVPORT_TOKEN")))
