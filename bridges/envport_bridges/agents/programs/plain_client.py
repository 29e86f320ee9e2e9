"""The agent `mcp`: a plain MCP client that calls tools at random. It gets the same information as every agent."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import anyio

from envport.tools.sampling import ArgumentSampler
from envport_bridges.agents.programs.seat import Seat

__all__ = ["main"]

_MOST_CALLS = 200


async def _play(prompt: str) -> str:
    async with Seat.at(os.environ["ENVPORT_MCP_URL"], os.environ.get("ENVPORT_TOKEN")) as seat:
        rng = Random(prompt)
        while seat.tools and not seat.over:
            if seat.calls >= _MOST_CALLS:
                return f"stopped after {_MOST_CALLS} calls"
            tool = rng.choice(seat.tools)
            await seat.call(tool["name"], ArgumentSampler(tool["inputSchema"]).sample(rng))
        return "the episode was over" if seat.over else "there is no tool"


def main() -> None:
    """Play the episode that the environment variables name."""
    prompt = Path(os.environ["ENVPORT_PROMPT_FILE"]).read_text(encoding="utf-8")
    print(anyio.run(_play, prompt), file=sys.stderr)


if __name__ == "__main__":
    main()
