"""A scripted player of catch: it reads where the ball is, and moves there. It plays through MCP, as any agent does."""

from __future__ import annotations

import asyncio
import random

import mcp

from envport import AsyncClient

AT_A_TIME = 8


def towards_the_ball(observation: str) -> str:
    """The best move, by an observation such as `Rows to fall: 3. The ball is 1 to the left.`"""
    return "left" if "left" in observation else "right" if "right" in observation else "stay"


async def play_one(mcp_url: str, observation: str, slips: random.Random, share: float) -> None:
    """Play an episode to its end.

    Args:
        mcp_url: Where the episode is played.
        observation: What the player saw first.
        slips: Decides where the player slips.
        share: Share of the moves in which it slips: they go anywhere.
    """
    over = False
    async with mcp.Client(mcp_url) as player:
        while not over:
            slipped = slips.random() < share
            move = slips.choice(["left", "stay", "right"]) if slipped else towards_the_ball(observation)
            result = await player.call_tool("move", {"direction": move})
            observation = "\n".join(block.text for block in result.content if block.type == "text")
            over = "envport/outcome" in (result.meta or {})


async def play(url: str, environment: str, episodes: int, seed: int, share: float = 0.0, run: str = "expert") -> None:
    """Play episodes with starts of the split `train`.

    Args:
        url: The gateway.
        environment: The environment's name there.
        episodes: How many.
        seed: Makes the episodes, and the slips.
        share: Share of the moves in which the player slips.
        run: The label `run` of the episodes, by which they are found again.
    """
    rng = random.Random(seed)
    places = asyncio.Semaphore(AT_A_TIME)

    async def one(client: AsyncClient, seed: int) -> None:
        async with places:
            # Whoever opens an episode is on the control plane, and whoever plays it is not.
            opened = await client.open(environment, split="train", seed=seed, labels={"run": run})
            await play_one(opened.mcp_url, opened.observation.text, random.Random(seed), share)

    async with AsyncClient(url) as client, asyncio.TaskGroup() as group:
        for _ in range(episodes):
            group.create_task(one(client, rng.randrange(2**31)))
