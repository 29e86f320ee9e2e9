"""An agent of its own: a model behind OpenAI's API, an environment behind MCP, and nothing of envport's."""

import asyncio
import json
import os
import ssl
import sys
from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

TLS = ssl.create_default_context()  # To load the certificates for each client would take longer than a game.


async def play(mission):
    async with (
        DefaultAsyncHttpxClient(verify=TLS) as web,
        AsyncOpenAI(base_url=mission["model_url"], api_key=mission["model_token"], http_client=web) as model,
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {mission['mcp_token']}"}, timeout=60, verify=TLS) as http,
        Client(streamable_http_client(mission["mcp_url"], http_client=http)) as episode,
    ):
        listed = (await episode.list_tools()).tools
        functions = [{"name": t.name, "description": t.description, "parameters": t.input_schema} for t in listed]
        tools = [{"type": "function", "function": function} for function in functions]
        messages = [{"role": "user", "content": mission["prompt"]}]
        for _ in range(8):
            answer = await model.chat.completions.create(model="policy", messages=messages, tools=tools)
            message = answer.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls or []:
                result = await episode.call_tool(call.function.name, json.loads(call.function.arguments))
                text = "\n".join(block.text for block in result.content)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
            if not message.tool_calls:
                return


if "--resident" in sys.argv:  # One mission after another, as standard input names them.
    for line in sys.stdin:
        asyncio.run(play(mission := json.loads(line)))
        print(json.dumps({"done": mission["id"]}), flush=True)
else:  # The mission is in the environment's variables.
    names = {"mcp_url": "ENVPORT_MCP_URL", "mcp_token": "ENVPORT_TOKEN"}
    names |= {"model_url": "OPENAI_BASE_URL", "model_token": "OPENAI_API_KEY"}
    prompt = Path(os.environ["ENVPORT_PROMPT_FILE"]).read_text()
    asyncio.run(play({"prompt": prompt} | {key: os.environ[name] for key, name in names.items()}))
