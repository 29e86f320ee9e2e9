"""Environments written with OpenEnv's own classes, on one server. It runs in a virtual environment of OpenEnv's.

Run as `openenv_server.py FOLDER`. It writes its port to standard output when it listens.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import socket
import struct
import sys
import zlib
from typing import Annotated, Any, Literal
from unittest.mock import MagicMock

# OpenEnv draws web pages with gradio. Importing it takes half of the start, and nobody looks at them here.
sys.modules["gradio"] = sys.modules["gradio.themes"] = MagicMock()

import uvicorn  # noqa: E402
from fastapi import FastAPI  # noqa: E402
from fastmcp import FastMCP  # noqa: E402
from fastmcp.utilities.types import Image  # noqa: E402
from openenv.core.env_server.http_server import create_fastapi_app  # noqa: E402
from openenv.core.env_server.interfaces import Environment  # noqa: E402
from openenv.core.env_server.mcp_environment import MCPEnvironment  # noqa: E402
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation  # noqa: E402
from openenv.core.env_server.types import Action, Observation, State  # noqa: E402
from pydantic import Field, RootModel, field_validator  # noqa: E402

ALIVE: set[int] = set()


def png() -> bytes:
    """A picture of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


class Counted:
    """Environments that are alive are counted, from the first reset on."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    _state = State()

    def began(self) -> None:
        ALIVE.add(id(self))

    def close(self) -> None:
        ALIVE.discard(id(self))

    @property
    def state(self) -> State:
        return self._state


class GuessAction(Action):
    """Guess the number."""

    number: int = Field(description="The guess.", ge=0, le=9)
    how: Literal["aloud", "quietly"] = "aloud"
    note: str = ""

    @field_validator("note")
    @classmethod
    def _short(cls, note: str) -> str:
        # An assertion would be as good. OpenEnv cannot tell of a `ValueError`, and ends the session.
        from pydantic_core import PydanticCustomError

        if len(note) > 5:
            raise PydanticCustomError("note", "a note has at most 5 letters")
        return note


class GuessObservation(Observation):
    hint: str = ""
    inside: dict[str, Any] = Field(default_factory=dict)


class Guess(Counted, Environment):
    """Guess a number."""

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> GuessObservation:
        self.began()
        self._secret = random.Random(seed).randrange(10)
        return GuessObservation(hint="guess", inside={"seed": seed, **more}, reward=0.25)

    def step(self, action: GuessAction, timeout_s: float | None = None, **more: Any) -> GuessObservation:
        if action.note == "boom":
            raise RuntimeError("the dice are lost")
        if action.note == "gone":
            os._exit(1)
        right = action.number == self._secret
        seen: dict[str, Any] = {"how": action.how}
        if action.how == "quietly":
            seen["views"] = [{"frame": base64.b64encode(png()).decode()}]
            seen["pixels"] = [[[row, column, 0] for column in range(9)] for row in range(8)]
            seen["board"] = [[0, 1], [1, 0]]
        return GuessObservation(
            hint="right" if right else "wrong",
            inside=seen,
            reward=1.0 if right else -0.5,
            done=right,
            metadata={"tried": action.number},
        )

    def list_splits(self) -> list[Any]:
        return ["train", "test"]

    def list_tasks(self, split: str) -> list[Any]:
        return self.get_task_range(split)

    def num_tasks(self, split: str) -> int:
        return {"train": 501, "test": 2}[split]

    def get_task(self, split: str, index: int) -> Any:
        return {"id": f"{split}-{index}", "prompt": f"Guess number {index}."}

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[Any]:
        return [self.get_task(split, index) for index in range(self.num_tasks(split))[start:stop]]


class Tools(Counted, MCPEnvironment):
    """Add numbers until they are 10."""

    def __init__(self) -> None:
        server = FastMCP("tools")
        self._sum = 0

        @server.tool
        def add(number: Annotated[int, Field(ge=1)], times: int = 1) -> int:
            """Add a number."""
            self._sum += number * times
            return self._sum

        @server.tool
        def picture() -> Image:
            """See a picture."""
            return Image(data=png(), format="png")

        @server.tool
        def refuse(why: str) -> str:
            """Refuse."""
            raise ValueError(f"not found: {why}")

        super().__init__(server)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Observation:
        self.began()
        self._sum, self._steps = 0, 0
        return Observation(metadata={"goal": "10"})

    async def step_async(self, action: Any, timeout_s: float | None = None, **more: Any) -> Any:
        observation = await super().step_async(action, timeout_s, **more)
        self._steps = getattr(self, "_steps", 0) + 1
        if isinstance(action, CallToolAction) and action.tool_name == "add":
            observation.reward, observation.done = float(self._steps), self._sum >= 10
        return observation

    def _step_impl(self, action: Any, timeout_s: float | None = None, **more: Any) -> Observation:
        raise NotImplementedError

    def close(self) -> None:
        Counted.close(self)
        super().close()


class Place(Action):
    x: int


class Move(Action):
    """Move somewhere."""

    kind: Literal["move"] = "move"
    to: Place


class Wait(Action):
    """Wait."""

    kind: Literal["wait"] = "wait"


class Union_(RootModel[Annotated[Move | Wait, Field(discriminator="kind")]]):
    pass


class Wrapped(Action):
    """Do something."""

    act: Annotated[Move | Wait, Field(discriminator="kind")]


class Mover(Counted, Environment):
    """Move."""

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> GuessObservation:
        self.began()
        return GuessObservation()

    def step(self, action: Any, timeout_s: float | None = None, **more: Any) -> GuessObservation:
        done = action.root if isinstance(action, Union_) else action.act
        return GuessObservation(hint=f"{type(done).__name__} {done.to.x if isinstance(done, Move) else ''}".strip())


def scaffold(folder: str) -> Any:
    """The application of what `openenv init` makes."""
    from openenv.cli.commands.init import init

    init("made_env", folder)
    sys.path.insert(0, f"{folder}/made_env")
    from server.app import app  # pyright: ignore

    return app


async def serve(folder: str) -> None:
    app = FastAPI()
    app.get("/alive")(lambda: len(ALIVE))
    many = {"max_concurrent_envs": 64}
    app.mount("/guess", create_fastapi_app(Guess, GuessAction, GuessObservation, **many))
    app.mount("/tools", create_fastapi_app(Tools, CallToolAction, CallToolObservation, **many))
    app.mount("/bare", create_fastapi_app(Tools, Action, Observation, **many))
    app.mount("/union", create_fastapi_app(Mover, Union_, GuessObservation, **many))
    app.mount("/wrapped", create_fastapi_app(Mover, Wrapped, GuessObservation, **many))
    app.mount("/three", create_fastapi_app(Guess, GuessAction, GuessObservation, max_concurrent_envs=3))
    app.mount("/made", scaffold(folder))
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    # Whoever connects from now on waits for the server.
    taken.listen()
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="websockets-sansio"))
    print(taken.getsockname()[1], flush=True)
    await server.serve(sockets=[taken])


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
