"""The agent of `agent.py`, written with Pydantic AI: its loop, its words for mistakes, and nothing of envport's."""

import asyncio
import json
import os
import sys
from pathlib import Path

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider


async def play(mission):
    provider = OpenAICompatibleProvider("policy", base_url=mission["model_url"], api_key=mission["model_token"])
    episode = MCPToolset(mission["mcp_url"], headers={"Authorization": f"Bearer {mission['mcp_token']}"})
    agent = Agent(OpenAIChatModel("policy", provider=provider), toolsets=[episode])
    async with agent:
        await agent.run(mission["prompt"], usage_limits=UsageLimits(request_limit=8))


if "--resident" in sys.argv:  # One mission after another, as standard input names them.
    for line in sys.stdin:
        mission = json.loads(line)
        answer = {"done": mission["id"]}
        try:
            asyncio.run(play(mission))
        except Exception as error:  # Pydantic AI gives up on a model that makes too many mistakes.
            answer["error"] = str(error)
        print(json.dumps(answer), flush=True)
else:  # The mission is in the environment's variables.
    names = {"mcp_url": "ENVPORT_MCP_URL", "mcp_token": "ENVPORT_TOKEN"}
    names |= {"model_url": "OPENAI_BASE_URL", "model_token": "OPENAI_API_KEY"}
    prompt = Path(os.environ["ENVPORT_PROMPT_FILE"]).read_text()
    asyncio.run(play({"prompt": prompt} | {key: os.environ[name] for key, name in names.items()}))
