"""A scripted player: solves four kinds of tasks of MiniWoB++ through MCP. A model would read the same page.

It is started with the address of an episode as its argument, and a token in ENVPORT_TOKEN.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


def element(page: str, kind: str, number: int = 0) -> str:
    """The id of an element: `[12] button 'Ok'`."""
    return re.findall(rf"\[(\w+)\] {kind}", page)[number]


def calls(page: str) -> list[tuple[str, dict[str, Any]]]:
    """The calls that do what the goal says."""
    goal = page.partition("Goal: ")[2].partition("\n")[0]
    if found := re.fullmatch(r'Click on the "(.*)" button\.', goal):
        return [("click", {"bid": element(page, f"button '{re.escape(found[1])}'")})]
    if found := re.fullmatch(r'Enter "(.*)" into the text field and press Submit\.', goal):
        filled = ("fill", {"bid": element(page, "textbox"), "value": found[1]})
        return [filled, ("click", {"bid": element(page, "button 'Submit'")})]
    if found := re.fullmatch(r"Focus into the (\d)\w+ input textbox\.", goal):
        return [("click", {"bid": element(page, "textbox", int(found[1]) - 1)})]
    if found := re.fullmatch(r"Select (.*) from the list and click Submit\.", goal):
        chosen = ("select_option", {"bid": element(page, "combobox"), "options": [found[1]]})
        return [chosen, ("click", {"bid": element(page, "button 'Submit'")})]
    raise ValueError(f"no script for this goal: {goal}")


async def play(url: str, token: str | None) -> str:
    """Play the episode; returns the last answer."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        answer = ""
        # The first page comes with the server's instructions.
        for tool, arguments in calls(client.instructions or ""):
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result
            answer = result.content[0].text
    return answer


if __name__ == "__main__":
    print(anyio.run(play, sys.argv[1], os.environ.get("ENVPORT_TOKEN")))
