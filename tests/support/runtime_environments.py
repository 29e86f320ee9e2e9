"""Environments that try out what runs them: by everything that is allowed, and by faults of every kind."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import random
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Literal

import anyio
from pydantic import BaseModel

from envport import Environment, Progress, Step, Task, ToolError, UpstreamLost, tool

SECRET = "hunter2-lies-in-the-traceback"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))

Fault = Literal["SIGKILL", "SIGSEGV", "SIGABRT", "exit"]


class Report(BaseModel):
    score: float
    note: str | None = None


class Everything(Environment):
    """Does everything that an environment may do, the same wherever it runs."""

    def __init__(self, greeting: str = "Welcome", numbers: tuple[int, ...] = (1, 2), folder: Path = Path("/")):
        self._greeting = greeting
        self._options = [list(numbers), str(folder), type(folder).__name__]

    def reset(self, *, seed: int, task: Task | None) -> list[Any]:
        match task.metadata.get("at_reset") if task else None:
            case "refuse":
                raise ToolError("There is no such level. \ud800")
            case "lose":
                raise UpstreamLost(SECRET)
        self._drawn = self.rng.random()
        return [self._greeting, PNG, {"seed": seed, "drawn": self._drawn, "task": task.model_dump() if task else None}]

    @tool
    def options(self) -> dict[str, Any]:
        """Tell the options."""
        return {"options": self._options}

    @tool
    def draw(self) -> float:
        """Draw a number."""
        return self.rng.random()

    @tool
    def give(self, what: Literal["text", "nothing", "number", "image", "model", "data", "mixed", "odd"]) -> Any:
        """Give an observation of that kind."""
        return {
            "text": "Größe 😀 \x00",
            "nothing": None,
            "number": 0.1,
            "image": PNG,
            "model": Report(score=0.5),
            "data": {"a": None, "b": [1, {"c": 1e300}], "big": 2**80, "whole": 1.0, "ü": "\ud800"},
            "mixed": ["look:", PNG, Report(score=1.0, note="ü")],
            "odd": "a\ud800b",
        }[what]

    @tool
    def say(self, text: str) -> str:
        """Say a text back."""
        return text

    @tool
    def nest(self, value: Any) -> dict[str, Any]:
        """Say any value back."""
        return {"value": value}

    @tool
    def fill(self, characters: int) -> str:
        """Give a long text."""
        return "x" * characters

    @tool
    def earn(self, reward: float | None = None, ends: Literal["no", "terminated", "truncated"] = "no") -> Step[str]:
        """Earn a reward."""
        info = {"when": (1, 2), "nan": None, "odd": "\ud800", "nested": {"a": [1.5]}}
        return Step("earned", reward=reward, terminated=ends == "terminated", truncated=ends == "truncated", info=info)

    @tool
    def refuse(self) -> str:
        """Refuse in words."""
        raise ToolError("The door is locked. \ud800")

    @tool
    def lose(self) -> str:
        """Find that what it stands on is gone."""
        try:
            raise ConnectionResetError("by the server")
        except ConnectionError as error:
            raise UpstreamLost(SECRET) from error

    @tool
    def boom(self) -> str:
        """Break."""
        raise RuntimeError(SECRET)

    @tool
    def leave(self) -> str:
        """Try to end the interpreter."""
        sys.exit(3)

    @tool
    def strange(self) -> Any:
        """Return what no observation can be."""
        return object()

    @tool
    def shout(self, text: str) -> str:
        """Write to standard output, of Python and beneath it."""
        print(text)
        os.write(1, text.encode())
        return "shouted"

    @tool
    def toil(self, steps: int, progress: Progress) -> str:
        """Report progress, the last of it from another thread."""
        for step in range(steps - 1):
            progress(step + 1, steps, f"step {step + 1}")
        thread = threading.Thread(target=progress, args=(steps, None))
        thread.start()
        thread.join()
        return "toiled"


class Gentle(Environment):
    """Is async, and has a task of its own that goes on between the calls."""

    def __init__(self, stuck: bool = False):
        self._stuck = stuck

    async def reset(self, *, seed: int, task: Task | None) -> str:
        self._ticks = asyncio.Queue[int]()
        self._ticking = asyncio.create_task(self._tick())
        if self._stuck:
            await asyncio.Event().wait()
        return "ready"

    async def _tick(self) -> None:
        for number in range(3):
            await asyncio.sleep(0)
            self._ticks.put_nowait(number)

    @tool
    async def next_tick(self, progress: Progress) -> int:
        """Wait for the next tick."""
        progress(1)
        return await self._ticks.get()

    @tool
    def at_once(self) -> str:
        """Answer without waiting."""
        return asyncio.get_running_loop().__class__.__name__ and "at once"

    @tool
    async def hang(self) -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return "never"

    @tool
    async def swallow(self, returns: bool) -> Step[str]:
        """Ignore the cancellation, then return or go on until the episode is closed."""
        self._closed = asyncio.Event()
        while True:
            try:
                await self._closed.wait()
                return Step("closed", reward=1.0)
            except asyncio.CancelledError:
                if returns:
                    return Step("swallowed", reward=1.0)

    @tool
    async def refuse(self) -> str:
        """Refuse in words."""
        await asyncio.sleep(0)
        raise ToolError("Not now.")

    @tool
    async def lose(self) -> str:
        """Find that what it stands on is gone."""
        await asyncio.sleep(0)
        raise UpstreamLost(SECRET)

    async def close(self) -> None:
        if hasattr(self, "_closed"):
            self._closed.set()
        self._ticking.cancel()
        await asyncio.gather(self._ticking, return_exceptions=True)


class Faulty(Environment):
    """Breaks in every way that takes a process along."""

    runtime = "process"

    def __init__(self, at_reset: Literal["nothing", "exit", "hang"] = "nothing"):
        self._at_reset = at_reset
        self._count = 0

    def reset(self, *, seed: int, task: Task | None) -> str:
        if self._at_reset == "exit":
            os._exit(7)
        if self._at_reset == "hang":
            signal.pause()
        return f"{os.getpid()}"

    @tool
    def count(self) -> Step[int]:
        """Count up; each count is worth 1."""
        self._count += 1
        return Step(self._count, reward=1.0)

    @tool
    def random_numbers(self) -> str:
        """Draw from the module's generator, which every process has its own of."""
        return str(random.random())

    @tool
    def die(self, of: Fault, last_words: str = "") -> str:
        """Die."""
        print(last_words, file=sys.stderr)
        if of == "SIGSEGV":
            ctypes.string_at(0)
        if of == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.Signals[of])
        return "alive"

    @tool
    def loop(self) -> str:
        """Never return."""
        while True:
            pass

    @tool
    def hold_the_gil(self) -> str:
        """Never return, and let no other thread run."""
        return str(re.match(r"(a+)+$", "a" * 64 + "b"))

    @tool
    def ignore_signals(self) -> str:
        """Never return, whatever is asked politely."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            pass

    @tool
    def sleep(self, seconds: float) -> str:
        """Block."""
        time.sleep(seconds)
        return "slept"

    @tool
    def burn(self, seconds: float) -> str:
        """Use the CPU for so long."""
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        return "burnt"

    @tool
    def keep(self, megabytes: int) -> str:
        """Take memory and keep it."""
        self._kept = b"\1" * (megabytes * 2**20)
        return "kept"

    @tool
    def eat(self, megabytes: int) -> str:
        """Take memory and keep calling for more of it."""
        held = [b"\1" * 2**20 for _ in range(megabytes)]
        signal.pause()
        return str(len(held))

    @tool
    def orphan(self, own_session: bool = False) -> str:
        """Leave a process behind that holds every descriptor open; say which, on the path `/proc/PID`."""
        ours, theirs = os.pipe()
        if os.fork() == 0:
            if own_session:
                os.setsid()
            if (pid := os.fork()) == 0:
                while True:
                    signal.pause()
            os.write(theirs, f"{pid}".encode())
            os._exit(0)
        return os.read(ours, 16).decode()

    @tool
    def babble(self) -> str:
        """Die, leaving a process behind that reports progress for ever."""
        if os.fork() == 0:
            os.setsid()
            body = b'{"progress":[1,null,null]}'
            while True:
                os.write(3, len(body).to_bytes(4, "big") + body)
        os._exit(3)

    @tool
    def spoil(self, how: Literal["noise", "length", "list", "unasked", "reward", "closed", "progress"]) -> str:
        """Write to the gateway's socket, which no tool should."""
        if how == "closed":
            os.close(3)
            signal.pause()
        body = {
            "noise": b"{",
            "list": b"[]",
            "length": b"",
            "unasked": b'{"content":[]}',
            "reward": b'{"content":[],"reward":"much"}',
            "progress": b'{"progress":{"a":1}}',
        }[how]
        length = 2**31 if how == "length" else len(body)
        frame = length.to_bytes(4, "big") + body
        os.write(3, frame * 2 if how == "unasked" else frame)
        signal.pause()
        return "spoilt"


class Prisoner(Environment):
    """Tries whatever it is told, to get out of its sandbox."""

    runtime = "process"
    sandbox = True
    sandbox_paths = ("../pages",)
    sandbox_variables = ("OF_THE_ENVIRONMENT",)
    max_processes = 64

    def __init__(self, memory_mb: float | None = None, cpu_seconds: float | None = None):
        self.memory_mb = memory_mb
        self.cpu_seconds = cpu_seconds

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "locked up"

    @tool
    def attempt(self, code: str) -> str:
        """Run code, and tell the value of `result`, or what kept it from being there."""
        space: dict[str, Any] = {"result": None}
        try:
            exec(code, space)
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        return str(space["result"])


class Free(Prisoner):
    """Tries the same without a sandbox."""

    sandbox = False


class Closing(Environment):
    """Writes to a file when it is closed."""

    runtime = "process"

    def __init__(self, file: Path, hang: bool = False):
        self._file = file
        self._hang = hang

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "open"

    def close(self) -> None:
        self._file.write_text("closed")
        if self._hang:
            signal.pause()

    @tool
    def finish(self) -> Step[str]:
        """End the task."""
        return Step("done", reward=1.0, terminated=True)


class Lingering(Environment):
    """Closes when a file says that it may."""

    close_seconds = 30.0

    def __init__(self, folder: Path):
        self._folder = folder

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "open"

    @tool
    def finish(self) -> Step[str]:
        """End the task."""
        return Step("done", reward=1.0, terminated=True)

    async def close(self) -> None:
        (self._folder / "closing").touch()
        while not (self._folder / "may close").exists():  # noqa: ASYNC110 (a file tells of nothing)
            await anyio.sleep(0.005)
        (self._folder / "closed").touch()


class Blocking(Lingering):
    """The same, holding its thread."""

    def close(self) -> None:  # type: ignore[override]
        (self._folder / "closing").touch()
        while not (self._folder / "may close").exists():
            time.sleep(0.005)
        (self._folder / "closed").touch()


class Stubborn(Lingering):
    """Has little time for closing."""

    close_seconds = 0.1


class Slumbering(Lingering):
    """Closes for longer than a gateway should be held up."""

    def close(self) -> None:  # type: ignore[override]
        time.sleep(0.6)


class Printing(Everything):
    """Does everything, in a process of its own."""

    runtime = "process"


class Nosy(Environment):
    """Looks at what is around it."""

    runtime = "process"

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "nosy"

    @tool
    def variable(self, name: str) -> str:
        """Tell an environment variable."""
        return str(os.environ.get(name))


class Drawing(Environment):
    """Draws numbers, in a process of its own."""

    runtime = "process"

    def reset(self, *, seed: int, task: Task | None) -> str:
        return "Draw."

    @tool
    def draw(self, below: int = 100) -> int:
        """Draw a number.

        Args:
            below: The number is below this, or 0.
        """
        return self.rng.randrange(below) if below > 0 else 0

    def close(self) -> None:
        """Nothing is held."""
