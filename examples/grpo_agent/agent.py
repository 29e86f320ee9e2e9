"""An agent of its own: a model behind OpenAI's API, an environment behind MCP, and nothing of envport's.

python agent.py                plays the episode that its environment variables name
python agent.py --resident     plays one mission after another, as its standard input names them
"""

import asyncio
import json
import os
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from openai import AsyncOpenAI

MOST_TURNS = 8


async def play(mission):
    headers = {"Authorization": f"Bearer {mission['mcp_token']}"}
    async with (
        AsyncOpenAI(base_url=mission["model_url"], api_key=mission["model_token"], timeout=600) as model,
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(mission["mcp_url"], http_client=http)) as episode,
    ):
        listed = (await episode.list_tools()).tools
        tools = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.input_schema},
            }
            for t in listed
        ]
        messages = [{"role": "user", "content": mission["prompt"]}]
        for _ in range(MOST_TURNS):
            answer = await model.chat.completions.create(model="policy", messages=messages, tools=tools)
            message = answer.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return
            for call in message.tool_calls:
                result = await episode.call_tool(call.function.name, json.loads(call.function.arguments))
                text = "\n".join(block.text for block in result.content)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


def main():
    if "--resident" in sys.argv:
        for line in sys.stdin:
            mission = json.loads(line)
            asyncio.run(play(mission))
            print(json.dumps({"done": mission["id"]}), flush=True)
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
