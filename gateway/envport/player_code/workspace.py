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
from envport.player_code.bubblewrap import VARIABLES, PlayerLimits, SandboxView
from envport.player_code.channel import exchange, started
from envport.player_code.kept import KeptProgram
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

    Made by `PlayerCode.workspace`. Nothing of a run is left when it returns but its files. `start` keeps a program.
    """

    def __init__(self, limits: PlayerLimits, view: SandboxView, hooks: Hooks):
        self._hooks = hooks
        self._turn = threading.Lock()
        self._closing = threading.Lock()
        self._sock: socket.socket | None = None
        self._sock, self._process = started(limits, view)

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
        request = {"op": "run", **_command(argv, variables), "stdin": _coded(stdin)}
        _check_seconds(timeout)
        if files:
            self.write(files)
        return self._played(request, timeout)[0]

    def start(self, argv: Sequence[str], *, variables: Mapping[str, str] | None = None) -> KeptProgram:
        """Start a program that stays from one request to the next, such as a shell or an interpreter.

        The program reads requests from descriptor 3, each of which ends with a null byte. When it has done what a
        request says, it writes an exit code and a newline to descriptor 4. Its standard input is empty.

        Between requests, it and all that it has started stand still; several programs may be kept, and a request to
        one lets all go on. The limits hold for all together. A later `run` ends all of them first.

        Args:
            argv: The program and its arguments.
            variables: Environment variables, beside those that `run` gives.

        Raises:
            ValueError: `argv` is empty.
        """
        answer = self._ask({"op": "start", **_command(argv, variables)}, 0.0)
        try:
            number = None if answer is None else int(answer["number"])
        except (KeyError, TypeError, ValueError):
            self.close()
            number = None
        return KeptProgram(self._ask_kept, number)

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

    def _ask_kept(self, number: int, text: str, timeout: float) -> tuple[PlayerRun, bool]:
        _check_seconds(timeout)
        return self._played({"op": "ask", "number": number, "text": _coded(text)}, timeout)

    def _played(self, request: dict[str, Any], seconds: float) -> tuple[PlayerRun, bool]:
        """Have code of the player run. What became of it, and whether its program is still there."""
        with self._hooks.announced():
            answer = self._ask({**request, "seconds": seconds}, seconds)
        if answer is None:
            return _LOST, False
        try:
            return PlayerRun.of(answer), answer.get("kept") is True
        except (KeyError, TypeError, ValueError):
            self.close()
            return _LOST, False

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


def _command(argv: Sequence[str], variables: Mapping[str, str] | None) -> dict[str, Any]:
    if isinstance(argv, str) or not argv:
        raise ValueError(f"argv is {argv!r}; it has to be a list of the program and its arguments")
    return {"argv": list(argv), "env": {**VARIABLES, **(variables or {})}}


def _check_seconds(timeout: float) -> None:
    if not 0 < timeout < float("inf"):
        raise ValueError(f"timeout is {timeout!r}; allowed: seconds above 0")


def _coded(content: str | bytes) -> str:
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    return binascii.b2a_base64(data).decode("ascii")
