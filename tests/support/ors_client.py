"""The client of the Open Reward Standard, as a program for the virtual environment of `openreward`.

Reads a line of JSON for each thing to do, `{"do": ..., ...}`, and writes what came of it as a line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import sys
from dataclasses import asdict
from typing import Any

import openreward_light  # noqa: F401
from openreward import AsyncOpenReward, OpenReward

clients: dict[str, OpenReward] = {}
sessions: list[Any] = []


def environment(url: str, name: str, key: str = "", variant: str | None = None) -> Any:
    if key not in clients:
        clients[key] = OpenReward(api_key=key)
    return clients[key].environments.get(name, variant=variant, base_url=url)


def look(split: str, **where: Any) -> Any:
    """What the client finds out without a session."""
    env = environment(**where)
    return {
        "splits": env.list_splits(),
        "count": env.num_tasks(split),
        "tasks": [asdict(task) for task in env.list_tasks(split)],
        "second": asdict(env.get_task(split, 1)),
        "last": [asdict(task) for task in env.get_task_range(split, -2)],
        "tools": [asdict(tool) for tool in env.list_tools()],
    }


def opened(
    split: str | None = None,
    index: int | None = None,
    task_spec: dict[str, Any] | None = None,
    secrets: dict[str, str] | None = None,
    **where: Any,
) -> Any:
    env = environment(**where)
    given = {name: (value, []) for name, value in (secrets or {}).items()}
    task = None
    if task_spec is not None:
        from openreward.api.environments.types import Task

        task = Task(server_name=env.server, environment_name=where["name"], task_spec=task_spec, namespace=None)
    session = env.session(task, given, split=split, index=index)
    session.__enter__()
    sessions.append(session)
    return {
        "session": len(sessions) - 1,
        "sid": session.sid,
        "prompt": [asdict(block) for block in session.get_prompt()],
        "tools": [asdict(tool) for tool in session.list_tools()],
    }


def called(session: int, tool: str, input: dict[str, Any]) -> Any:
    return asdict(sessions[session].call_tool(tool, input))


def stopped(session: int) -> Any:
    """The agent has written its last word."""
    assert sessions[session].is_assistant_message_final()
    return asdict(sessions[session].call_terminal_tool("That is all."))


def messages(session: int) -> Any:
    return [asdict(message) for message in sessions[session].get_messages()]


def closed(session: int) -> Any:
    sessions[session].__exit__(None, None, None)


def asynchronous(split: str, index: int, calls: list[Any], **where: Any) -> Any:
    """An episode with the asynchronous client."""

    async def play() -> Any:
        client = AsyncOpenReward(api_key=where.get("key", ""))
        env = client.environments.get(where["name"], base_url=where["url"])
        async with env.session(split=split, index=index) as session:
            prompt = [asdict(block) for block in await session.get_prompt()]
            outputs = [asdict(await session.call_tool(tool, input)) for tool, input in calls]
        await client.environments.aclose()
        return {"prompt": prompt, "outputs": outputs}

    return asyncio.run(play())


def ran(url: str, source: str) -> str:
    """What a program prints that knows the gateway's address from its variables."""
    os.environ.update(OPENREWARD_SESSION_URL=url, OPENREWARD_API_URL=url)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(source, {})
    return printed.getvalue()


DO = {
    "run": ran,
    "look": look,
    "open": opened,
    "call": called,
    "stop": stopped,
    "messages": messages,
    "close": closed,
    "asynchronous": asynchronous,
}


def main() -> None:
    """Do what each line says."""
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            told = {"told": DO[asked.pop("do")](**asked)}
        except Exception as error:
            known = {name: getattr(error, name, None) for name in ("reason", "status")}
            told = {"raised": type(error).__name__, "message": str(error), **known}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
