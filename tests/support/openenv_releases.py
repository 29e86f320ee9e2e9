"""OpenEnv's servers for tests: the real ones of two releases, and one that breaks the protocol in every way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2
import pytest
from apart import python_of
from patience import patient
from websockets.asyncio.server import Request, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Response

OLD, NEW = "0.3.0", "0.10.0"
RELEASES = (pytest.param(OLD, marks=pytest.mark.slow), NEW)

ACTION = {
    "type": "object",
    "properties": {"number": {"type": "integer"}},
    "required": ["number"],
    "additionalProperties": False,
}


CALL_TOOL = {
    "type": "object",
    "properties": {
        "type": {"const": "call_tool", "type": "string"},
        "tool_name": {"type": "string"},
        "arguments": {"type": "object"},
    },
    "required": ["tool_name"],
}


class Released:
    """The server of `openenv_server.py` with one release of OpenEnv."""

    def __init__(self, process: subprocess.Popen[str], port: int, release: str):
        self.process = process
        self.release = release
        self.url = f"http://127.0.0.1:{port}"

    def alive(self) -> int:
        """How many environments that were reset have not been closed."""
        return httpx2.get(f"{self.url}/alive", timeout=patient(10)).json()


def openenv_python(release: str) -> Path:
    """The Python that has a release of OpenEnv installed; skips if there is none."""
    return python_of("openenv", release, target="test" if release == NEW else "test-slow")


@contextlib.contextmanager
def released(release: str, folder: Path) -> Iterator[Released]:
    """Start the server, or skip if the release is not installed."""
    python = openenv_python(release)
    program = Path(__file__).with_name("openenv_server.py")
    with (folder / "errors").open("w+") as errors:
        process = subprocess.Popen(
            [python, program, folder], stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder
        )
        try:
            assert process.stdout is not None
            port = next((int(line) for line in process.stdout if line.strip().isdigit()), None)
            assert port is not None, (folder / "errors").read_text()
            yield Released(process, port, release)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


Behaviour = Callable[["Hostile", ServerConnection, str], Coroutine[Any, Any, None]]


class Hostile:
    """A server that behaves until it is told not to.

    Attributes:
        url: Its URL.
        misbehave: Answers a `reset` or a `step` in the place of the server, if set.
        sessions: How many sessions it takes.
        open: How many are open.
        status: The HTTP status of its pages.
        page: What it answers to requests, if not what the protocol has.
        tools: The tools that its environment lists; `None` if it takes actions.
        closing_seconds: How long its environment takes to close.
        authorized: What it was sent in the header `Authorization`.
        repeats: Whether it repeats the type of a message that it does not know.
    """

    def __init__(self) -> None:
        self.url = ""
        self.open = 0
        self.authorized: set[str | None] = set()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self.behave()

    def behave(self) -> None:
        """Do nothing wrong from now on."""
        self.misbehave: Behaviour | None = None
        self.sessions = 100
        self.status = HTTPStatus.OK
        self.page: bytes | None = None
        self.tools: list[Any] | None = None
        self.repeats = True
        self.closing_seconds = 0.0

    async def run(self) -> None:
        async with serve(self._session, "127.0.0.1", 0, process_request=self._page, close_timeout=1) as server:
            self._loop = asyncio.get_running_loop()
            self.url = f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
            self._ready.set()
            await self._stop.wait()

    def _page(self, _: ServerConnection, request: Request) -> Response | None:
        self.authorized.add(request.headers.get("authorization"))
        if request.path == "/ws":
            return None
        action = ACTION if self.tools is None else CALL_TOOL
        pages = {"/schema": {"action": action}, "/metadata": {"name": "Hostile", "description": "Say a number."}}
        content = self.page if self.page is not None else json.dumps(pages.get(request.path)).encode()
        status = self.status if request.path in pages else HTTPStatus.NOT_FOUND
        return Response(status, "", Headers({"Content-Length": str(len(content)), "Connection": "close"}), content)

    async def _session(self, socket: ServerConnection) -> None:
        if self.open >= self.sessions:
            await error(socket, "CAPACITY_REACHED", f"{self.open}/{self.sessions} sessions", max_sessions=self.sessions)
            return
        self.open += 1
        try:
            async for message in socket:
                match json.loads(message):
                    case {"type": "close"}:
                        await asyncio.sleep(self.closing_seconds)
                        return
                    case {"type": "step", "data": {"type": "list_tools"}}:
                        await observe(socket, "listed", observation={"tools": self.tools})
                    case {"type": "reset" | "step" as kind} if self.misbehave is not None:
                        await self.misbehave(self, socket, kind)
                    case {"type": "reset" | "step" as kind}:
                        await observe(socket, kind)
                    case {"type": kind}:
                        await error(socket, "UNKNOWN_TYPE", f"Unknown message type: {kind if self.repeats else 'this'}")
        except ConnectionClosed:
            pass
        finally:
            self.open -= 1

    def __enter__(self) -> Hostile:
        self._thread = threading.Thread(target=lambda: asyncio.run(self.run()))
        self._thread.start()
        assert self._ready.wait(patient(10))
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(patient(10))
        assert not self._thread.is_alive()


async def observe(socket: ServerConnection, text: str, **other: Any) -> None:
    data = {"observation": {"text": text}, "reward": 1.0, "done": False, **other}
    await socket.send(json.dumps({"type": "observation", "data": data}))


async def error(socket: ServerConnection, code: str, message: str, **more: Any) -> None:
    await socket.send(json.dumps({"type": "error", "data": {"message": message, "code": code, **more}}))


async def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until something outside this process has happened."""
    async with asyncio.timeout(patient(seconds)):
        while not true():  # noqa: ASYNC110 - another process does not set events
            await asyncio.sleep(0.01)


__all__ = ["NEW", "OLD", "RELEASES", "Hostile", "Released", "error", "observe", "openenv_python", "released", "until"]
