"""The same agent as `agent.py`, written with Pydantic AI, and nothing of envport's.

python pydantic_agent.py                plays the episode that its environment variables name
python pydantic_agent.py --resident     plays one mission after another, as its standard input names them
"""

import asyncio
import json
import os
import sys

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

MOST_TURNS = UsageLimits(request_limit=8)


async def play(mission):
    provider = OpenAICompatibleProvider("policy", base_url=mission["model_url"], api_key=mission["model_token"])
    episode = MCPToolset(mission["mcp_url"], headers={"Authorization": f"Bearer {mission['mcp_token']}"})
    agent = Agent(OpenAIChatModel("policy", provider=provider), toolsets=[episode])
    async with agent:
        await agent.run(mission["prompt"], usage_limits=MOST_TURNS)


def main():
    if "--resident" in sys.argv:
        for line in sys.stdin:
            mission = json.loads(line)
            answer = {"done": mission["id"]}
            try:
                asyncio.run(play(mission))
            except Exception as error:
                answer["error"] = f"{type(error).__name__}: {error}"
            print(json.dumps(answer), flush=True)
    else:
        with open(os.environ["ENVPORT_PROMPT_FILE"]) as file:
            prompt = file.read()
        names = {
            "mcp_url": "ENVPORT_MCP_URL",
            "mcp_token": "ENVPORT_TOKEN",
            "model_url": "OPENAI_BASE_URL",
            "model_token": "OPENAI_API_KEY",
        }
        asyncio.run(play({"prompt": prompt} | {key: os.environ[name] for key, name in names.items()}))


main()
