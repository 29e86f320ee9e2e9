"""OpenEnv's clients as a load. Run as a file, in a virtual environment that has OpenEnv.

It reads the jobs of `envport.bench.jobs` as lines of JSON from standard input, and answers each with a sample.
"""

# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from openenv.core.env_server.mcp_types import CallToolAction
from openenv.core.generic_client import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient


class PlainSession:
    """A session of the plain environment, through `GenericEnvClient`.

    Args:
        url: Address of the server.
    """

    def __init__(self, url: str):
        self._client = self._made(url)
        self._steps = 0

    def _made(self, url: str) -> Any:
        return GenericEnvClient(base_url=url)

    async def begin(self) -> None:
        """Connect, and start an episode."""
        await self._client.connect()
        await self._client.reset()

    async def step(self) -> None:
        """Take a step, and check what is said back."""
        self._steps += 1
        message = f"{id(self)} says {self._steps}"
        said = await self._said(message)
        if said != message:
            raise ValueError(f"was told {message!r} and said {said!r}")

    async def _said(self, message: str) -> Any:
        return (await self._client.step({"message": message})).observation["message"]

    async def end(self) -> None:
        """End the session."""
        await self._client.close()


class McpSession(PlainSession):
    """A session of the MCP environment, through `MCPToolClient`.

    It takes steps. `call_tool` would go over HTTP, cost nearly twice as much, and bring no reward.
    """

    def _made(self, url: str) -> Any:
        return MCPToolClient(base_url=url)

    async def _said(self, message: str) -> Any:
        action = CallToolAction(tool_name="echo", arguments={"message": message})
        return (await self._client.step(action)).observation.result["data"]


class ServedSession(PlainSession):
    """A session at our gateway, which speaks OpenEnv's protocol, through `GenericEnvClient`."""

    async def _said(self, message: str) -> Any:
        return (await self._client.step({"message": message})).observation["text"]


_KINDS = {"plain": PlainSession, "mcp": McpSession, "served": ServedSession}


async def _measured(pid: int, sessions: list[PlainSession], each: int) -> dict[str, Any]:
    latencies: list[float] = []

    async def play(session: PlainSession) -> None:
        for _ in range(each):
            start = time.perf_counter()
            await session.step()
            latencies.append(time.perf_counter() - start)

    clock = (~pid << 3) | 2  # The CPU clock of a process; see clock_getcpuclockid(3).
    start, own, cpu = time.perf_counter(), time.process_time(), time.clock_gettime(clock)
    await asyncio.gather(*map(play, sessions))
    seconds = time.perf_counter() - start
    own, cpu = time.process_time() - own, time.clock_gettime(clock) - cpu
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")
    return {
        "count": len(latencies),
        "seconds": seconds,
        "cpu_seconds": cpu,
        "client_seconds": own,
        "p50": cuts[49],
        "p99": cuts[98],
    }


def _held(pid: int) -> tuple[int, int]:
    """Memory that a process shares with no other one, in KB, and its threads."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    kb = sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
    return kb, len(os.listdir(f"/proc/{pid}/task"))


async def _opened(pid: int, sessions: list[PlainSession]) -> dict[str, float]:
    kb, threads = _held(pid)
    start = time.perf_counter()
    await asyncio.gather(*(session.begin() for session in sessions))
    seconds = time.perf_counter() - start
    more_kb, more_threads = _held(pid)
    count = len(sessions)
    return {"per_second": count / seconds, "kb": (more_kb - kb) / count, "threads": (more_threads - threads) / count}


async def _answer(kind: str, job: dict[str, Any]) -> dict[str, Any]:
    first = _KINDS[kind](job["url"])
    # What is loaded and made once is not a session's.
    await first.begin()
    await first.step()
    await first.end()
    sessions = [_KINDS[kind](job["url"]) for _ in range(job["callers"])]
    costs = await _opened(job["pid"], sessions)
    await _measured(job["pid"], sessions, 2)
    sample = await _measured(job["pid"], sessions, max(1, job["count"] // job["callers"]))
    await asyncio.gather(*(session.end() for session in sessions))
    return {**sample, "sessions": costs}


def main(kind: str) -> None:
    """Do jobs at an environment, `plain`, `mcp` or `served`, until standard input ends."""
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            try:
                answer = runner.run(_answer(kind, json.loads(line)))
            except Exception as error:  # Whatever its client raises is the answer.
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
