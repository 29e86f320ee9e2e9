"""The agent `mcp`: a plain MCP client that calls tools at random. It gets the same information as every agent."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import anyio

from envport_bridges.evaluation.players.policies import View, play_policy, random_calls
from envport_bridges.evaluation.players.seat import Seat

__all__ = ["main"]

_MOST_CALLS = 200


async def _play(prompt: str) -> str:
    async with Seat.at(os.environ["ENVPORT_MCP_URL"], os.environ.get("ENVPORT_TOKEN")) as seat:
        view = View("", prompt, seat.tools, prompt, Random(prompt))
        return await play_policy(random_calls, view, seat, _MOST_CALLS)


def main() -> None:
    """Play the episode that the environment variables name."""
    prompt = Path(os.environ["ENVPORT_PROMPT_FILE"]).read_text(encoding="utf-8")
    print(anyio.run(_play, prompt), file=sys.stderr)


if __name__ == "__main__":
    main()
