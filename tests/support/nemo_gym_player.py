"""Plays rows with NeMo Gym's own simple agent, and prints what came of them. Runs in NeMo Gym's environment.

The model is a server in this process that answers with the calls it is given, one after the other. The rest is NeMo
Gym's own: its agent's server, and the client by which servers reach each other, which knows a host and a port alone.
"""

import asyncio
import json
import socket
import sys

import uvicorn
from fastapi import FastAPI, Request
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import GlobalAIOHTTPAsyncClientConfig, ServerClient, set_global_aiohttp_client
from omegaconf import OmegaConf
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig

HOST = "127.0.0.1"


def model(calls):
    """A server with the Responses API that makes the calls it is given, and then stops."""
    app = FastAPI()

    @app.post("/v1/responses")
    async def respond(request: Request):
        body = await request.json()
        number = sum(item.get("type") == "function_call_output" for item in body["input"])
        text = {"type": "output_text", "text": "I stop.", "annotations": []}
        item = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
        if number < len(calls):
            name, arguments = calls[number]
            item = {"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": json.dumps(arguments)}
        return {
            "id": "r",
            "created_at": 0,
            "model": "scripted",
            "object": "response",
            "output": [item],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": body.get("tools") or [],
        }

    return app


def bound():
    sock = socket.socket()
    sock.bind((HOST, 0))
    return sock, sock.getsockname()[1]


async def main(asked):
    (at_model, model_port), (at_agent, agent_port) = bound(), bound()
    servers = {
        "envport": {"resources_servers": {"envport": {"host": HOST, "port": asked["port"]}}},
        "policy": {"responses_api_models": {"scripted": {"host": HOST, "port": model_port}}},
        "agent": {"responses_api_agents": {"simple_agent": {"host": HOST, "port": agent_port}}},
    }
    config = SimpleAgentConfig(
        name="agent",
        host=HOST,
        port=agent_port,
        entrypoint="app.py",
        resources_server={"type": "resources_servers", "name": "envport"},
        model_server={"type": "responses_api_models", "name": "policy"},
    )
    client = ServerClient(
        head_server_config=BaseServerConfig(host=HOST, port=1), global_config_dict=OmegaConf.create(servers)
    )
    agent = SimpleAgent(config=config, server_client=client)
    app = agent.setup_webserver()
    agent.setup_exception_middleware(app)
    running = [
        asyncio.create_task(uvicorn.Server(uvicorn.Config(it, log_level="error")).serve(sockets=[sock]))
        for it, sock in ((app, at_agent), (model(asked["calls"]), at_model))
    ]
    set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig())
    for row in asked["rows"]:
        answer = await client.post(server_name="agent", url_path="/run", json=row)
        print(json.dumps({"status": answer.status, "body": await answer.json()}), flush=True)
    metrics = await client.post(
        server_name="agent", url_path="/aggregate_metrics", json={"verify_responses": [{"reward": 1.0}]}
    )
    print(json.dumps({"status": metrics.status, "body": await metrics.json()}), flush=True)
    for task in running:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.stdin.read())))
