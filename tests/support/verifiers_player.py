"""Plays tasks with verifiers v1, a run for each line, and prints what came of them. Runs in verifiers' environment.

The model is a server in this process that answers with the calls it is given, one after the other. The rest is
verifiers' own: its environment, its interception, its chat program with its MCP client.
"""

import asyncio
import json
import sys

import verifiers.v1 as vf
from aiohttp import web
from verifiers.v1.env import RunSlot
from verifiers.v1.utils.loaders import load_environment, resolve_env_config


async def in_this_python(self, script, env=None, *, activate=True):
    """The chat program's packages are installed here, so that nothing has to be downloaded."""
    path = f"{self.scripts_dir}/program.py"
    await self.write(path, script.encode() if isinstance(script, str) else script)
    return [sys.executable, path]


class ScriptedModel:
    """A server with OpenAI's API that makes the calls it is given."""

    def __init__(self, calls):
        self.calls = calls
        self.asked = []

    async def complete(self, request):
        body = await request.json()
        self.asked.append(body)
        number = sum(message["role"] == "tool" for message in body["messages"])
        message = {"role": "assistant", "content": "I stop." if number >= len(self.calls) else None}
        if number < len(self.calls):
            name, arguments = self.calls[number]
            function = {"name": name, "arguments": json.dumps(arguments)}
            message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
        if not body.get("stream"):
            return web.json_response({**answer, "choices": [choice], "usage": usage})
        for number, call in enumerate(message.get("tool_calls") or ()):
            call["index"] = number
        chunk = {**answer, "object": "chat.completion.chunk", "usage": usage}
        chunk["choices"] = [{"index": 0, "delta": message, "finish_reason": finish}]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())
        return response


async def play(asked):
    """Play a number of tasks, each once, all at the same time."""
    model = ScriptedModel(asked["calls"])
    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/v1/chat/completions", model.complete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    raw = {
        "taskset": {"id": "envport-taskset", **asked["taskset"]},
        "agent": {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}},
    }
    env = load_environment(resolve_env_config(raw))
    client = vf.EvalClientConfig(base_url=f"http://127.0.0.1:{port}/v1", api_key_var="NO_KEY")
    ctx = vf.ModelContext(client=client, model="scripted", sampling=vf.SamplingConfig())
    tasks = list(env.taskset.take(asked["tasks"]))
    async with env.serving():
        episodes = await asyncio.gather(*(env.run_slot(RunSlot(task), ctx) for task in tasks))
    await runner.cleanup()
    told = [what_came(task, episode) for task, episode in zip(tasks, episodes, strict=True)]
    print(json.dumps({"episodes": told, "asked": model.asked}), flush=True)


def what_came(task, episode):
    trace = episode.traces[0]
    return {
        "key": task.key,
        "ok": episode.ok,
        "rewards": {name: it and it.value for name, it in trace.rewards.items()},
        "metrics": trace.metrics,
        "errors": [f"{it.type}: {it.message}" for it in trace.errors],
        "stopped": trace.stop_condition,
    }


async def main():
    for line in sys.stdin:
        await play(json.loads(line))


if __name__ == "__main__":
    from verifiers.v1.runtimes.base import Runtime

    Runtime.prepare_uv_script = in_this_python
    asyncio.run(main())
