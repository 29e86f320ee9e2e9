"""The load generator: callers that each play their own episode, in a separate process from the server.

It reads jobs as lines of JSON from standard input and answers each with a line on standard output. It checks every
answer of a server, so that fast errors do not look like good results.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any, Self, TypeVar

import aiohttp
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from envport.bench.channel_load import ChannelCaller, ChannelLine
from envport.bench.jobs import Job, Sample
from envport.bench.processes import cpu_seconds
from envport.bench.targets import TARGETS, BenchTarget

__all__ = ["BadAnswer", "LoadCaller", "Refused", "main"]

CallerT = TypeVar("CallerT")

_MODERN, _LEGACY = "2026-07-28", "2025-11-25"
_CLIENT = {"name": "envport-bench", "version": "1"}
_META = {
    PROTOCOL_VERSION_META_KEY: _MODERN,
    CLIENT_CAPABILITIES_META_KEY: {},
    CLIENT_INFO_META_KEY: _CLIENT,
}
_ACCEPT = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class BadAnswer(Exception):
    """A server gave a wrong answer."""


class Refused(BadAnswer):
    """The gateway had no capacity, and refused in the documented way.

    Args:
        message: The gateway's message.
        retry_after: Seconds to wait before the next try.
    """

    def __init__(self, message: str, retry_after: float):
        super().__init__(message)
        self.retry_after = retry_after


class LoadCaller:
    """One caller: a connection, and an episode and a session if the target has them.

    Args:
        target: The target to call.
        url: Address of its server.
    """

    def __init__(self, target: BenchTarget, url: str):
        self._target = target
        self._http = aiohttp.ClientSession(
            url,
            connector=aiohttp.TCPConnector(limit=1),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=60),
        )
        self._episode = ""
        routing = {"MCP-Protocol-Version": _MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "echo"}
        self._headers = _ACCEPT if target.era == "legacy" else _ACCEPT | routing
        self._calls = 0

    @property
    def episode(self) -> str:
        """The handle of the episode that it plays."""
        return self._episode

    @property
    def _path(self) -> str:
        return self._target.path.format(episode=self._episode)

    async def begin(self) -> Self:
        """Open an episode and a session, if the target needs them."""
        if self._target.plays:
            self._episode = await self.open_episode()
        if self._target.era == "legacy":
            await self._begin_session()
        return self

    async def open_episode(self) -> str:
        """Open an episode, and return its handle."""
        _, body = await self._request("POST", "/episodes", {"environment": "echo"}, expect=201)
        return json.loads(body)["episode_id"]

    def sit_down(self, handle: str) -> None:
        """Play this episode from now on."""
        self._episode = handle

    async def call(self) -> None:
        """Call the tool, and check its answer."""
        self._calls += 1
        message = f"{self._episode} says {self._calls}"
        arguments = {"message": message}
        if self._target.passes_episode_id:
            arguments["episode_id"] = self._episode
        params: dict[str, Any] = {"name": "echo", "arguments": arguments}
        if self._target.era == "modern":
            params["_meta"] = _META
        call = {"jsonrpc": "2.0", "id": self._calls, "method": "tools/call", "params": params}
        _, body = await self._request("POST", self._path, call)
        answer = json.loads(body)
        result = answer.get("result", {})
        said = [block.get("text") for block in result.get("content", [])]
        if answer.get("id") != self._calls or said != [message] or result.get("isError"):
            raise BadAnswer(f"{self._target.name} was told {message!r} and answered {body[:500]!r}")

    async def end(self) -> None:
        """End the session and the episode, and close the connection."""
        if self._target.era == "legacy":
            await self._request("DELETE", self._path)
        if self._episode:
            await self.close_episode(self._episode)
        await self.hang_up()

    async def close_episode(self, handle: str) -> dict[str, Any]:
        """Close an episode, and return its last state."""
        _, body = await self._request("DELETE", f"/episodes/{handle}")
        return json.loads(body)

    async def readiness(self) -> dict[str, Any]:
        """The gateway's readiness report."""
        _, body = await self._request("GET", "/readyz")
        return json.loads(body)

    async def hang_up(self) -> None:
        """Close the connection and leave everything else as it is."""
        await self._http.close()

    async def _begin_session(self) -> None:
        params = {"protocolVersion": _LEGACY, "capabilities": {}, "clientInfo": _CLIENT}
        first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        headers, _ = await self._request("POST", self._path, first)
        session = {"Mcp-Session-Id": headers["Mcp-Session-Id"], "MCP-Protocol-Version": _LEGACY}
        self._headers = _ACCEPT | session
        second = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._request("POST", self._path, second, expect=202)

    async def _request(self, method: str, path: str, json_body: Any = None, expect: int = 200) -> tuple[Any, bytes]:
        data = json.dumps(json_body).encode() if json_body is not None else None
        headers = self._headers if path == self._path else _ACCEPT
        async with self._http.request(method, path, data=data, headers=headers) as response:
            body = await response.read()
            if response.status == 503 and "Retry-After" in response.headers:
                raise Refused(f"{method} {path} was refused: {body[:500]!r}", float(response.headers["Retry-After"]))
            if response.status != expect:
                raise BadAnswer(f"{method} {path} was answered {response.status}, not {expect}: {body[:500]!r}")
            return response.headers, body


async def _measure(
    pid: int, callers: Sequence[CallerT], each: int, work: Callable[[CallerT], Awaitable[Any]]
) -> Sample:
    latencies: list[float] = []

    async def repeat(caller: CallerT) -> None:
        for _ in range(each):
            start = time.perf_counter()
            await work(caller)
            latencies.append(time.perf_counter() - start)

    start, cpu = time.perf_counter(), cpu_seconds(pid)
    await asyncio.gather(*map(repeat, callers))
    seconds, cpu = time.perf_counter() - start, cpu_seconds(pid) - cpu
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")
    return Sample(len(latencies), seconds, cpu, cuts[49], cuts[98])


async def _calls(job: Job) -> Sample:
    if TARGETS[job.target].era == "channel":
        return await _channel_calls(job)
    callers = [LoadCaller(TARGETS[job.target], job.url) for _ in range(job.callers)]
    await asyncio.gather(*(caller.begin() for caller in callers))
    # Warm up: the first calls of a connection and of an episode cost more than the others.
    await _measure(job.pid, callers, 2, LoadCaller.call)
    sample = await _measure(job.pid, callers, max(1, job.count // job.callers), LoadCaller.call)
    await asyncio.gather(*(caller.end() for caller in callers))
    return sample


async def _channel_calls(job: Job) -> Sample:
    target = TARGETS[job.target]
    line = ChannelLine(job.url, target.path)
    callers = [ChannelCaller(target, line) for _ in range(job.callers)]
    await asyncio.gather(*(caller.begin() for caller in callers))
    await _measure(job.pid, callers, 2, _right)
    sample = await _measure(job.pid, callers, max(1, job.count // job.callers), _right)
    await asyncio.gather(*(caller.end() for caller in callers))
    await line.close()
    return sample


async def _right(caller: ChannelCaller) -> None:
    if (wrong := await caller.call()) is not None:
        raise BadAnswer(wrong)


async def _opens(job: Job) -> Sample:
    callers = [LoadCaller(TARGETS[job.target], job.url) for _ in range(job.callers)]
    opened: list[str] = []

    async def open_one(caller: LoadCaller) -> None:
        opened.append(await caller.open_episode())

    await _measure(job.pid, callers, 2, open_one)
    sample = await _measure(job.pid, callers, max(1, job.count // job.callers), open_one)
    for number, handle in enumerate(opened):
        await callers[number % len(callers)].close_episode(handle)
    await asyncio.gather(*(caller.hang_up() for caller in callers))
    return sample


async def _hold(job: Job) -> Sample:
    target = TARGETS[job.target]
    callers = [LoadCaller(target, job.url) for _ in range(job.callers)]

    async def begin_and_leave(_: LoadCaller) -> None:
        player = await LoadCaller(target, job.url).begin()
        await player.call()
        await player.hang_up()

    sample = await _measure(job.pid, callers, max(1, job.count // job.callers), begin_and_leave)
    await asyncio.gather(*(caller.hang_up() for caller in callers))
    return sample


_staying: list[LoadCaller] = []


async def _stay(job: Job) -> Sample:
    callers = [LoadCaller(TARGETS[job.target], job.url) for _ in range(job.callers)]
    await asyncio.gather(*(caller.begin() for caller in callers))
    sample = await _measure(job.pid, callers, max(1, job.count // job.callers), LoadCaller.call)
    _staying.extend(callers)
    return sample


_KINDS = {"calls": _calls, "opens": _opens, "hold": _hold, "stay": _stay}


async def main() -> None:
    """Do jobs until standard input ends."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        job = Job(**json.loads(line))
        try:
            answer = asdict(await _KINDS[job.kind](job))
        except (BadAnswer, aiohttp.ClientError, TimeoutError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
