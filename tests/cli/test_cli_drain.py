"""Ending in order: `serve` and `stdio` at SIGTERM and SIGINT, with episodes that are being played."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from command_line import FRESH, SECONDS, Served, command, environment, player, text
from harness import ERAS, Era, connect, running
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from patience import patient

from envport import AsyncClient, Client
from envport.errors import Draining, EpisodeFailed, GatewayUnreachable, UnknownEpisode
from envport.registry import load

MODES = ["auto", "legacy"]

# Longer than any test waits: what ends before has not waited for it.
LONG = str(round(10 * SECONDS))

SLOW = """
import time
from pathlib import Path

from envport import Environment, tool


class Slow(Environment):
    \"\"\"Takes its time.\"\"\"

    runtime = "thread"

    def __init__(self, folder: str):
        self._folder = Path(folder)

    def reset(self, *, seed, task):
        return "Begin."

    @tool
    def wait(self) -> str:
        \"\"\"Wait until there is a file.\"\"\"
        (self._folder / "waiting").touch()
        while not (self._folder / "go").exists():
            time.sleep(0.01)
        return "done"

    def close(self):
        (self._folder / "closed").touch()
"""


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    (tmp_path / "slow.py").write_text(SLOW)
    return tmp_path


async def until(path: Path) -> None:
    """Wait for a file that another process makes."""

    def wait() -> None:
        end = time.monotonic() + SECONDS
        while not path.exists():
            assert time.monotonic() < end
            threading.Event().wait(0.005)

    await asyncio.to_thread(wait)


async def drains(served: Served) -> None:
    """Send SIGTERM and wait until it has been understood."""
    served.process.send_signal(signal.SIGTERM)
    async with httpx2.AsyncClient() as http:
        while (await http.get(f"{served.url}/readyz")).status_code == 200:
            pass


async def ended(served: Served) -> int:
    return await asyncio.to_thread(served.process.wait, SECONDS)


@pytest.mark.parametrize("mode", MODES)
async def test_at_sigterm_episodes_are_played_to_their_end_and_no_others_begin(mode: str):
    with Served("counter", "catch", "--drain-seconds", LONG, "--max-episodes-of", "catch=1") as served:
        async with AsyncClient(served.url) as control:
            episode, held, over = [await control.open(name) for name in ("counter", "catch", "counter")]
            await control.close_episode(over.episode_id)
            waiting = asyncio.create_task(control.open("catch"))
            async with player(episode.mcp_url, mode) as agent:
                assert text(await agent.call_tool("count", {})) == "1"
                await drains(served)
                ready = httpx2.get(f"{served.url}/readyz")
                assert (ready.status_code, ready.json()["status"]) == (503, "draining")
                assert "being stopped" in ready.json()["reason"]
                assert httpx2.get(f"{served.url}/healthz").status_code == 200
                with pytest.raises(Draining):
                    await waiting
                with pytest.raises(Draining, match="no new episodes") as refused:
                    await control.open("counter")
                assert refused.value.retry_after > 0
                answer = httpx2.post(f"{served.url}/episodes", json={"environment": "counter"})
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
                assert int(answer.headers["Retry-After"]) > 0
                async with player(f"{served.url}/environments/counter/mcp", mode) as other:
                    refusal = await other.call_tool("start_episode", {})
                assert refusal.is_error
                assert (refusal.meta or {})["envport/error"] == "draining"
                assert text(await agent.call_tool("count", {})) == "2"
                await control.reset(episode.episode_id)
                assert text(await agent.call_tool("count", {})) == "1"
            await control.close_episode(held.episode_id)
            closed = await control.close_episode(episode.episode_id)
            assert closed.outcome is not None
            assert closed.outcome.fault is None
            assert await ended(served) == 0


async def test_an_ended_episode_does_not_start_over_during_a_drain():
    with Served("counter", "catch?rows=3", "--drain-seconds", LONG) as served:
        async with AsyncClient(served.url) as control:
            playing, over = await control.open("counter"), await control.open("catch")
            async with player(over.mcp_url) as agent:
                while not ((await agent.call_tool("move", {"direction": "stay"})).meta or {})["envport/terminated"]:
                    pass
            await drains(served)
            with pytest.raises(Draining):
                await control.reset(over.episode_id)
            await control.close_episode(playing.episode_id)
            assert await ended(served) == 0


async def test_at_the_limit_the_rest_ends_as_lost_and_can_still_be_asked_for():
    with Served("counter", "--drain-seconds", "0.5") as served:
        async with AsyncClient(served.url) as control:
            episode = await control.open("counter")
            served.process.send_signal(signal.SIGTERM)
            while (state := await control.episode(episode.episode_id)).status == "running":
                pass
            assert state.outcome is not None
            assert (state.status, state.outcome.reason, state.outcome.fault) == ("closed", "shutdown", "infrastructure")
            assert state.reward is None
            assert await ended(served) == 0
            assert "draining: 1 episodes" in served.log


@pytest.mark.parametrize("era", ERAS)
async def test_after_a_drain_players_are_told_that_the_gateway_was_shut_down(era: Era):
    with running(load("counter")) as gateway:
        async with AsyncClient(gateway.url) as control:
            episode = await control.open("counter")
            async with connect(episode.mcp_url, era) as agent:
                assert text(await agent.call_tool("count", {})) == "1"
                gateway.run(lambda: gateway.gateway.table.drain(0))
                refused = await agent.call_tool("count", {})
                assert (refused.is_error, (refused.meta or {})["envport/error"]) == (True, "episode_failed")
                assert (refused.meta or {})["envport/fault"] == "infrastructure"
                said = "The gateway was shut down, and the episode ended with it. This is not the fault of your call."
                assert text(refused).startswith(said)
                assert "open another one" in text(refused)
            with pytest.raises(EpisodeFailed, match="was shut down"):
                await control.reset(episode.episode_id)
            # Nobody else learns that it was there.
            with pytest.raises(UnknownEpisode):
                await control.reset("ep_unknown")


async def test_without_episodes_sigterm_ends_at_once():
    with Served("counter", "--drain-seconds", LONG) as served:
        with Client(served.url) as control:
            control.close_episode(control.open("counter").episode_id)
        assert served.stop(signal.SIGTERM) == 0
        assert "draining" not in served.log


async def test_ctrl_c_does_not_wait_for_episodes_that_idle():
    with Served("counter", "--drain-seconds", LONG) as served:
        with Client(served.url) as control:
            control.open("counter")
        assert served.stop(signal.SIGINT) == 0
        assert "draining" not in served.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_the_drain(number: signal.Signals, slow: Path):
    with Served(f"slow.py:Slow?folder={slow}", "--drain-seconds", LONG, "--shutdown-seconds", LONG, cwd=slow) as served:
        async with AsyncClient(served.url) as control:
            await control.open("slow")
            await drains(served)
            assert await asyncio.to_thread(served.stop, number) == 0
    assert (slow / "closed").exists(), "the environment was not closed in order"


async def test_ctrl_c_lets_the_call_that_is_running_finish(slow: Path):
    with Served(f"slow.py:Slow?folder={slow}", "--shutdown-seconds", LONG, cwd=slow) as served:
        async with AsyncClient(served.url) as control:
            episode = await control.open("slow")
            async with player(episode.mcp_url) as agent:
                # Or the client would ask for it after the answer.
                await agent.list_tools()
                call = asyncio.create_task(agent.call_tool("wait", {}))
                await until(slow / "waiting")
                served.process.send_signal(signal.SIGINT)
                while await _listens(control):
                    pass
                (slow / "go").touch()
                assert text(await call) == "done"
        assert await ended(served) == 0
    assert (slow / "closed").exists()


async def _listens(control: AsyncClient) -> bool:
    try:
        await control.environments()
    except GatewayUnreachable:
        return False
    return True


class Process:
    """`envport stdio` with a client of the SDK, whose process can be sent signals."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str):
        self.words = ["stdio", f"{folder}/slow.py:Slow?folder={folder}", *words]
        self.process: Any = None
        monkeypatch.setattr(anyio, "open_process", self._open)

    async def _open(self, *args: Any, _open: Any = anyio.open_process, **kwargs: Any) -> Any:
        self.process = await _open(*args, **kwargs)
        return self.process

    @property
    def client(self) -> Any:
        program, *words = command(*self.words)
        return stdio_client(StdioServerParameters(command=program, args=words, env=environment()))

    async def ended(self) -> int:
        with anyio.fail_after(SECONDS):
            return await self.process.wait()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("words", [(), ("--seed", "1")])
async def test_stdio_answers_the_running_call_before_it_ends(
    mode: str, words: tuple[str, ...], slow: Path, monkeypatch: pytest.MonkeyPatch
):
    server = Process(slow, monkeypatch, *words)
    async with McpClient(server.client, mode=mode) as client:
        # Or the client would ask for it after the answer.
        await client.list_tools()
        call = asyncio.create_task(client.call_tool("wait", {} if words else await _named(client)))
        await until(slow / "waiting")
        server.process.send_signal(signal.SIGTERM)
        (slow / "go").touch()
        result = await call
        assert text(result).endswith("done")
        assert not result.is_error
        # Its standard input is still open.
        assert await server.ended() == 0
    assert (slow / "closed").exists(), "the episode was not ended in order"


async def _named(client: McpClient) -> dict[str, Any]:
    started = await client.call_tool("start_episode", {})
    return {"episode_id": (started.meta or {})["envport/episode_id"]}


async def test_stdio_ends_at_once_when_it_is_idle(slow: Path, monkeypatch: pytest.MonkeyPatch):
    server = Process(slow, monkeypatch, "--drain-seconds", LONG)
    async with McpClient(server.client) as client:
        await client.call_tool("start_episode", {})
        server.process.send_signal(signal.SIGTERM)
        assert await server.ended() == 0
    assert (slow / "closed").exists()


@pytest.mark.parametrize("again", [False, True])
async def test_stdio_does_not_wait_for_ever(again: bool, slow: Path, monkeypatch: pytest.MonkeyPatch):
    server = Process(slow, monkeypatch, "--drain-seconds", LONG if again else "0.2")
    async with McpClient(server.client) as client:
        call = asyncio.create_task(client.call_tool("wait", await _named(client)))
        await until(slow / "waiting")
        server.process.send_signal(signal.SIGTERM)
        while again and server.process.returncode is None:
            # `send_signal` would take the exit code away from who waits for it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(server.process.pid, signal.SIGTERM)
            await anyio.sleep(0.05)
        assert await server.ended() == 0
        with pytest.raises(Exception, match=r".*"):
            (await call).raise_for_error()


STARTING = """
import subprocess, sys
command = [sys.argv[1], "serve", "counter", "--port", "0", "--drain-seconds", "0", "--end-with-input"]
gateway = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
next(line for line in gateway.stdout if "Stop with" in line)
print(gateway.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux, to wait for the process of another")
def test_no_gateway_is_left_by_a_program_that_is_killed():
    program = subprocess.Popen(
        [sys.executable, "-c", STARTING, FRESH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    gateway = os.pidfd_open(int(program.stdout.readline()))
    program.kill()
    program.communicate()
    try:
        assert select.select([gateway], [], [], patient(30))[0], "the gateway runs on"
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(gateway, signal.SIGKILL)
        os.close(gateway)
