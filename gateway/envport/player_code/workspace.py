"""A sandbox with a working folder of its own."""

from __future__ import annotations

import binascii
import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread

from envport.errors import ToolError
from envport.player_code.bubblewrap import VARIABLES, PlayerLimits
from envport.player_code.channel import Readable, exchange, started
from envport.player_code.result import PlayerRun
from envport.player_code.warden import pack

__all__ = ["DEFAULT_SECONDS", "Files", "Hooks", "Workspace"]

Files = Mapping[str, str | bytes]
"""Contents of files, by their paths."""

DEFAULT_SECONDS = 10.0
"""Seconds that a program of the player may take, if nothing else is said."""

# What the sandbox may take to end a run that is over.
_GRACE_SECONDS = 10.0
_MOST_READ = 16 * 2**20
_ENDED = "The sandbox was ended."
_LOST = PlayerRun(None, "SIGKILL", stderr=_ENDED)


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a workspace tells the `PlayerCode` that made it.

    Attributes:
        announced: Entered while code of the player is running.
        gone: Called with the workspace when it has ended.
    """

    announced: Callable[[], AbstractContextManager[None]]
    gone: Callable[[Any], None]


class Workspace:
    """A sandbox with a working folder, which stays from one run to the next. It ends with the episode.

    Made by `PlayerCode.workspace`. Nothing of a run is left when it returns but its files.
    """

    def __init__(self, limits: PlayerLimits, readable: Readable, hooks: Hooks):
        self._hooks = hooks
        self._turn = threading.Lock()
        self._closing = threading.Lock()
        self._sock: socket.socket | None = None
        self._sock, self._process = started(limits, readable)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: str | bytes = "",
        timeout: float = DEFAULT_SECONDS,
        files: Files | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> PlayerRun:
        """Run a program of the player in the working folder, and end everything that it started.

        Args:
            argv: The program and its arguments.
            stdin: Its standard input.
            timeout: Seconds that it may take. Keep it below what is left of `call_seconds`.
            files: Files to write into the working folder before.
            variables: Environment variables, beside `PATH`, `HOME`, `USER`, `LOGNAME` and `LANG`.

        Raises:
            ToolError: A file could not be written, or the input is larger than 64 MiB.
            ValueError: `argv` is empty, or `timeout` is not above 0.
        """
        if isinstance(argv, str) or not argv:
            raise ValueError(f"argv is {argv!r}; it has to be a list of the program and its arguments")
        if not 0 < timeout < float("inf"):
            raise ValueError(f"timeout is {timeout!r}; allowed: seconds above 0")
        if files:
            self.write(files)
        request: dict[str, Any] = {"op": "run", "argv": list(argv), "stdin": _coded(stdin), "seconds": timeout}
        request["env"] = {**VARIABLES, **(variables or {})}
        with self._hooks.announced():
            answer = self._ask(request, timeout)
        if answer is None:
            return _LOST
        try:
            return PlayerRun.of(answer)
        except (KeyError, TypeError, ValueError):
            self.close()
            return _LOST

    async def run_async(
        self,
        argv: Sequence[str],
        *,
        stdin: str | bytes = "",
        timeout: float = DEFAULT_SECONDS,  # noqa: ASYNC109
        files: Files | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> PlayerRun:
        """The same as `run`, for async tools. If it is cancelled, the sandbox is ended."""
        run = partial(self.run, argv, stdin=stdin, timeout=timeout, files=files, variables=variables)
        try:
            return await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.close)
            raise

    def write(self, files: Files, *, executable: bool = False) -> None:
        """Write files into the working folder, by their paths. Folders are made as needed.

        Args:
            files: The content of each file.
            executable: Whether they are programs.

        Raises:
            ToolError: A file could not be written, for example because the disk limit is reached.
        """
        for path, content in files.items():
            request = {"op": "write", "path": path, "data": _coded(content), "executable": executable}
            self._do(request, f"cannot write {path!r}")

    def write_tree(self, folder: str | os.PathLike[str], into: str = ".") -> None:
        """Copy the files of a folder of this machine into the working folder. Links are followed.

        Args:
            folder: The folder.
            into: Where it goes.

        Raises:
            ToolError: A file could not be written.
        """
        for root, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(root, name)
                with open(path, "rb") as file:
                    content = file.read()
                there = os.path.normpath(os.path.join(into, os.path.relpath(path, folder)))
                self.write({there: content}, executable=os.access(path, os.X_OK))

    def read(self, path: str, most: int = _MOST_READ) -> bytes:
        """Read a file of the working folder. What is in it is the player's.

        Args:
            path: Its path.
            most: Bytes that it may have.

        Raises:
            ToolError: There is no such file, or it is too large.
        """
        answer = self._do({"op": "read", "path": path, "most": most}, f"cannot read {path!r}")
        try:
            return binascii.a2b_base64(answer["data"])
        except (KeyError, TypeError, ValueError):
            raise ToolError(f"cannot read {path!r}: {_ENDED}") from None

    def close(self) -> None:
        """End the sandbox, with all that runs in it. Its files are gone."""
        with self._closing:
            sock, self._sock = self._sock, None
            if sock is None:
                return
            # A run in another thread waits at the socket, and is woken by this.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._hooks.gone(self)

    def _do(self, request: dict[str, Any], what: str) -> Mapping[str, Any]:
        answer = self._ask(request, 0.0)
        if answer is None:
            raise ToolError(f"{what}: {_ENDED}")
        if "failed" in answer:
            raise ToolError(f"{what}: {answer['failed']}")
        return answer

    def _ask(self, request: dict[str, Any], seconds: float) -> Mapping[str, Any] | None:
        """Send a request and wait for its answer; `None` if the sandbox is gone."""
        try:
            packed = pack(request)
        except ValueError as error:
            raise ToolError(f"the input is too large: {error}") from None
        with self._turn:
            sock = self._sock
            if sock is None:
                return None
            try:
                return exchange(sock, packed, seconds + _GRACE_SECONDS)
            except (OSError, ValueError):
                pass
        self.close()
        return None


def _coded(content: str | bytes) -> str:
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    return binascii.b2a_base64(data).decode("ascii")
