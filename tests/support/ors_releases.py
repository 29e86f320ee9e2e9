"""Open Reward Standard servers for tests: the real one, and one that breaks the standard in every way."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx2
import uvicorn
from apart import python_of
from patience import patient
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

RELEASE = "0.1.167"


class Released:
    """The server of `ors_server.py`."""

    def __init__(self, process: subprocess.Popen[str], port: int):
        self.process = process
        self.url = f"http://127.0.0.1:{port}"

    def told(self, what: str) -> Any:
        """`alive`: how many environments are; `called` and `asked`: which tools and tasks were."""
        return httpx2.get(f"{self.url}/told", timeout=patient(10)).json()[what]

    def alive(self) -> int:
        return self.told("alive")

    def break_off(self, when: str, times: int) -> None:
        """Break off the next calls, `early` or `late`."""
        httpx2.post(f"{self.url}/break/{when}/{times}", timeout=patient(10)).raise_for_status()


def openreward_python() -> Path:
    """The Python that has openreward installed; skips if there is none."""
    return python_of("openreward", RELEASE)


def variables() -> dict[str, str]:
    """The environment of a process with openreward, which looks for updates unless told otherwise."""
    return {**os.environ, "OPENREWARD_DISABLE_UPDATE_CHECK": "1"}


@contextlib.contextmanager
def released(folder: Path) -> Iterator[Released]:
    """Start the server, or skip if openreward is not installed."""
    program = Path(__file__).with_name("ors_server.py")
    with (folder / "errors").open("w+") as errors:
        process = subprocess.Popen(
            [openreward_python(), program],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            env=variables(),
        )
        try:
            assert process.stdout is not None
            port = next((int(line) for line in process.stdout if line.strip().isdigit()), None)
            assert port is not None, (folder / "errors").read_text()
            yield Released(process, port)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@dataclass(frozen=True)
class Asked:
    """A request that reached the server."""

    path: str
    headers: dict[str, str]
    body: Any

    @property
    def secrets(self) -> dict[str, Any]:
        return json.loads(base64.b64decode(self.headers.get("x-secrets", "e30=")))


Behaviour = Callable[["Hostile", Request], Coroutine[Any, Any, Response]]


class Cut(Response):
    """An answer that breaks off."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        raise ConnectionError


def events(*pairs: tuple[str, str]) -> bytes:
    return "".join(f"event: {event}\r\ndata: {data}\r\n\r\n" for event, data in pairs).encode()


def streamed(*pairs: tuple[str, str]) -> Response:
    return Response(events(*pairs), media_type="text/event-stream")


def output(**fields: Any) -> str:
    usual = {"blocks": [{"type": "text", "text": "ok"}], "metadata": None, "reward": 1.0, "finished": False}
    return json.dumps({"ok": True, "output": {**usual, **fields}})


def answered(**fields: Any) -> Response:
    return streamed(("task_id", "c1"), ("end", output(**fields)))


TOOL: dict[str, Any] = {"name": "go", "description": "Go.", "input_schema": {"type": "object", "properties": {}}}


@dataclass
class Hostile:
    """A server that behaves until it is told not to.

    Attributes:
        url: Its URL.
        wrong: What answers in the place of the server, by the last part of the path.
        asked: What it was asked.
        open: The ids of the sessions that have been created and not been deleted.
        tools: The tools of its environment.
        own: Further tools of its tasks.
    """

    url: str = ""
    wrong: dict[str, Behaviour] = field(default_factory=dict[str, Behaviour])
    asked: list[Asked] = field(default_factory=list[Asked])
    open: set[str] = field(default_factory=set[str])
    tools: list[Any] = field(default_factory=lambda: [TOOL])
    own: list[Any] = field(default_factory=list[Any])

    def behave(self) -> None:
        """Do nothing wrong from now on."""
        self.wrong, self.asked, self.tools, self.own = {}, [], [TOOL], []
        self.open.clear()

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    async def answer(self, request: Request) -> Response:
        body = await request.body()
        sent = json.loads(body) if body else None
        self.asked.append(Asked(request.url.path, dict(request.headers), sent))
        name = request.url.path.rpartition("/")[2]
        if name in self.wrong:
            return await self.wrong[name](self, request)
        return await self.usual(request)

    async def usual(self, request: Request) -> Response:
        """What the standard has."""
        name, body = request.url.path.rpartition("/")[2], await request.body()
        sent = json.loads(body) if body else None
        session = request.headers.get("x-session-id", "")
        if request.url.path in ("/tools", "/splits", "/num_tasks", "/task", "/task_tools", "/prompt", "/call"):
            return RedirectResponse(f"/it{request.url.path}", 308)
        match name:
            case "create_session":
                return streamed(("task_id", f"s{len(self.asked)}"), ("end", ""))
            case "create":
                self.open.add(session)
                return JSONResponse({"sid": session})
            case "delete":
                self.open.discard(session)
            case "ping" | "prompt" | "call" | "task_tools" if session not in self.open:
                return JSONResponse({"detail": "Active environment not found"}, 404)
            case "call":
                return answered()
            case _:
                pass
        pages: dict[str, Any] = {
            "list_environments": ["it"],
            "tools": {"tools": self.tools, "terminal_tool": None},
            "task_tools": {"tools": [*self.tools, *self.own]},
            "splits": [{"name": "train", "type": "train"}],
            "num_tasks": {"num_tasks": 3},
            "prompt": [{"type": "text", "text": "Go."}],
        }
        if name in ("task", "task_range"):
            given = cast("dict[str, Any]", sent)
            numbers = range(given.get("start", 0), given.get("stop", 0)) if name == "task_range" else [given["index"]]
            specs = [{"number": number} for number in numbers]
            pages |= {"task": {"task": specs[0], "env_name": "it"}, "task_range": {"tasks": specs, "env_name": "it"}}
        return JSONResponse(pages.get(name, {"status": "ok"}))

    def __enter__(self) -> Hostile:
        # With a named protocol, asyncio does not hold short answers back.
        taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        self.url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        app = Starlette(routes=[Route("/{path:path}", self.answer, methods=["GET", "POST"])])
        config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve(sockets=[taken])))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(patient(10))
        assert not self._thread.is_alive()


async def hangs(_: Hostile, request: Request) -> Response:
    with contextlib.suppress(ClientDisconnect):
        while (await request.receive())["type"] != "http.disconnect":
            pass
    return Response()


def gives(response: Response | Callable[[], Response]) -> Behaviour:
    async def behave(_: Hostile, request: Request) -> Response:
        return response if isinstance(response, Response) else response()

    return behave


def status(code: int, detail: str = "no", **headers: str) -> Behaviour:
    return gives(
        JSONResponse({"detail": detail}, code, {name.replace("_", "-"): said for name, said in headers.items()})
    )
