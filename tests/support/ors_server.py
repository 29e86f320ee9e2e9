"""Environments written with openreward's own classes, on one server. It runs in a virtual environment of openreward's.

It writes its port to standard output when it listens.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
import struct
import time
import zlib
from typing import Any

import uvicorn
from fastapi import FastAPI
from openreward.environments import Environment, ImageBlock, Server, Split, TextBlock, ToolOutput, terminal, tool
from openreward.environments import server as serving
from openreward.environments.types import ListToolsOutput, ToolSpec
from pydantic import BaseModel, Field

ALIVE: set[int] = set()
CALLED: list[str] = []
ASKED: list[str] = []
MANY = 1_000_000


def png() -> str:
    """A picture of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    made = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + made).decode()


class Clock:
    """The server's clock, which the tests put forward. It stands in the place of `time` and of `asyncio.sleep`."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.ticked = asyncio.Event()
        self.pinged = asyncio.Event()

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    async def sleep(self, seconds: float) -> None:
        self.ticked.clear()
        await self.ticked.wait()

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def pass_minutes(self, minutes: int) -> None:
        for _ in range(minutes):
            self.ahead += 60
            self.pinged.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.pinged.wait(), 5)
            self.ticked.set()
            for _ in range(5):
                await asyncio.sleep(0)


class Counted(Environment):
    """Environments that are alive are counted, from the constructor on."""

    def __init__(self, task_spec: Any, secrets: dict[str, str]) -> None:
        super().__init__(task_spec, secrets)
        self.secrets = secrets
        ALIVE.add(id(self))

    def teardown(self) -> None:
        ALIVE.discard(id(self))

    def get_prompt(self) -> Any:
        return [TextBlock(text=str(self.task_spec.get("question", "Begin.")))]


class Number(BaseModel):
    number: int = Field(description="The guess.", ge=0, le=9)
    note: str = ""


class Words(BaseModel):
    words: str


class Guess(Counted):
    """Guess a number."""

    def __init__(self, task_spec: Any, secrets: dict[str, str]) -> None:
        if secrets.get("broken"):
            raise RuntimeError(f"{secrets['broken']} opens nothing")
        super().__init__(task_spec, secrets)

    @classmethod
    def list_splits(cls) -> Any:
        return ["train", Split(name="held-out", type="test"), "empty"]

    @classmethod
    def list_tasks(cls, split: str) -> Any:
        raise NotImplementedError

    @classmethod
    async def num_tasks(cls, split: str) -> int:
        return {"train": MANY, "held-out": 2, "empty": 0}[split]

    @classmethod
    async def get_task(cls, split: str, index: int) -> Any:
        ASKED.append(f"{split}/{index}")
        if not 0 <= index < await cls.num_tasks(split):
            raise IndexError(index)
        return {"question": f"Guess number {index}.", "answer": index % 10}

    def get_prompt(self) -> Any:
        return [
            TextBlock(text=self.task_spec["question"], detail={"kind": "question"}),
            ImageBlock(data=png(), mimeType="image/png"),
        ]

    @tool
    def guess(self, number: Number) -> ToolOutput:
        """Guess."""
        CALLED.append("guess")
        if number.note == "boom":
            raise RuntimeError(f"the dice are lost, and {self.secrets.get('ITS_KEY')} with them")
        if number.note == "gone":
            os._exit(1)
        right = number.number == self.task_spec["answer"]
        return ToolOutput(
            blocks=[TextBlock(text="right" if right else "wrong", detail={"tries": 1})],
            metadata={"answer": self.task_spec["answer"]},
            reward=1.0 if right else -0.5,
            finished=right,
        )

    @tool
    def look(self) -> ToolOutput:
        """Look."""
        return ToolOutput(blocks=[TextBlock(text="See:"), ImageBlock(data=png(), mimeType="image/png")])

    @tool
    def read(self) -> ToolOutput:
        """Read something long."""
        return ToolOutput(blocks=[TextBlock(text=" 0\n" * 5_000)])

    @tool
    def knock(self) -> ToolOutput:
        """Tell which secrets there are."""
        return ToolOutput(blocks=[TextBlock(text=" ".join(f"{k}={len(v)}" for k, v in sorted(self.secrets.items())))])

    @tool
    async def wait(self, words: Words) -> ToolOutput:
        """Wait for a while."""
        CALLED.append("wait")
        await asyncio.sleep(0.2)
        return ToolOutput(blocks=[TextBlock(text=words.words)], reward=0.25)


def say(self: Any, words: Words) -> ToolOutput:
    """Say something."""
    return ToolOutput(blocks=[TextBlock(text=words.words)])


# A name that no method can be defined with.
setattr(Guess, "say-it", tool(say))


class Rooms(Counted):
    """Each task has another tool."""

    @classmethod
    def list_splits(cls) -> Any:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> Any:
        return [{"tool": name} for name in ("dig", "climb", "dig")]

    def list_task_tools(self) -> ListToolsOutput:
        schema = Words.model_json_schema()
        return ListToolsOutput(tools=[ToolSpec(name=self.task_spec["tool"], description="Do it.", input_schema=schema)])

    @tool
    def leave(self) -> ToolOutput:
        """Leave."""
        return ToolOutput(blocks=[], reward=0.5, finished=True)

    @tool(shared=False)
    def dig(self, words: Words) -> ToolOutput:
        return ToolOutput(blocks=[TextBlock(text=f"digs {words.words}")], reward=0.25)

    @tool(shared=False)
    def climb(self, words: Words) -> ToolOutput:
        return ToolOutput(blocks=[TextBlock(text=f"climbs {words.words}")])


class Answer(Counted):
    """Its only tool is the terminal one."""

    @classmethod
    def list_splits(cls) -> Any:
        return ["validation"]

    @classmethod
    def list_tasks(cls, split: str) -> Any:
        return [{"question": "6 * 7?"}]

    @terminal
    @tool
    async def submit(self, words: Words) -> ToolOutput:
        """Give the answer."""
        return ToolOutput(blocks=[], reward=float(words.words == "42"), finished=True)


class Broken:
    """Breaks off the streams of the next calls: before the call is named (`early`), or after (`late`)."""

    def __init__(self, app: Any, clock: Clock):
        self.app, self.clock = app, clock
        self.left: dict[str, int] = {"early": 0, "late": 0}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if path == "/ping":
            self.clock.pinged.set()
        when = next((when for when, left in self.left.items() if left), None)
        if when is None or not path.endswith("/call"):
            await self.app(scope, receive, send)
            return
        self.left[when] -= 1

        async def cut(message: Any) -> None:
            if message["type"] == "http.response.body" and when == "early":
                raise ConnectionError
            await send(message)
            if b"task_id" in message.get("body", b""):
                raise ConnectionError

        await self.app(scope, receive, cut)


async def serve() -> None:
    clock = Clock()
    serving.time = serving.asyncio = clock  # pyright: ignore
    # Everything of asyncio but sleeping is asyncio's own.
    server = Server([Guess, Rooms, Answer])
    inner = server.app
    app = FastAPI(lifespan=lambda _: inner.router.lifespan_context(inner))
    broken = Broken(inner, clock)
    app.get("/told")(lambda: {"alive": len(ALIVE), "called": CALLED, "asked": ASKED})
    app.post("/later/{minutes}")(clock.pass_minutes)

    @app.post("/break/{when}/{times}")
    def break_off(when: str, times: int) -> None:
        broken.left[when] = times

    app.mount("/", broken)
    # With a named protocol, asyncio does not hold short answers back.
    taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    taken.bind(("127.0.0.1", 0))
    # Whoever connects from now on waits for the server.
    taken.listen()
    print(taken.getsockname()[1], flush=True)
    # openreward logs every request to standard output, which nobody reads from now on.
    os.dup2(2, 1)
    await uvicorn.Server(uvicorn.Config(app, log_level="critical")).serve(sockets=[taken])


if __name__ == "__main__":
    asyncio.run(serve())
