"""The `envport` command forked from a process that has loaded it, as most tests run it.

Starting Python and importing the gateway is most of what a short command costs, and hundreds of tests run one. The fork
is a process of its own: arguments, variables, folder, streams, signals and exit code are those of the command. What it
does not show is how a fresh interpreter starts; `FRESH` in `command_line` is for tests of that.

This file is run in two ways, without envport's help: `forked.py serve FOLDER` loads the command and forks;
`forked.py run FOLDER WORDS...` has one forked with its own streams, passes signals on, and ends as it ends.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import selectors
import shutil
import signal
import socket
import sys
import threading
from contextlib import suppress

PASSED_ON = (signal.SIGTERM, signal.SIGINT)


def run(folder: str, words: list[str]) -> None:
    """Have a command forked, and end as it ends."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"{folder}/forks")
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    message = "\0".join([os.getcwd(), str(len(words)), *words, *variables]).encode("utf-8", "surrogateescape")
    socket.send_fds(connection, [len(message).to_bytes(8, "big")], [0, 1, 2])
    connection.sendall(message)
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: _pass_on(connection, number))
    status = int(connection.recv(16))
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    # There is nothing to clean up, and a stream may have no reader.
    os._exit(status)


def _pass_on(connection: socket.socket, number: int) -> None:
    # The command may have ended, and its status is still to be read.
    with suppress(OSError):
        connection.send(bytes([number]))


class Forks:
    """Forks whatever is asked for, until standard input ends."""

    def __init__(self, folder: str):
        self._folder = folder
        self._ready = selectors.DefaultSelector()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(f"{folder}/forks")
        self._listening.listen(64)
        self._ready.register(self._listening, selectors.EVENT_READ, ("asked", 0))
        self._ready.register(0, selectors.EVENT_READ, ("over", 0))
        self._running: dict[int, tuple[int, socket.socket]] = {}

    def serve(self) -> None:
        """Returns in the forks only."""
        while True:
            for key, _ in self._ready.select():
                what, pid = key.data
                if what == "over":
                    for pid in self._running:
                        os.kill(pid, signal.SIGKILL)
                    shutil.rmtree(self._folder, ignore_errors=True)
                    os._exit(0)
                elif what == "asked":
                    if self._fork() == 0:
                        return
                elif pid in self._running:
                    self._ended(pid) if what == "ended" else self._signalled(pid)

    def _fork(self) -> int:
        connection, _ = self._listening.accept()
        head, streams, _, _ = socket.recv_fds(connection, 8, 3)
        length, message = int.from_bytes(head, "big"), b""
        while len(message) < length and (more := connection.recv(length - len(message))):
            message += more
        pid = os.fork()
        if pid == 0:
            _become(message, streams)
            return 0
        for stream in streams:
            os.close(stream)
        ended = os.pidfd_open(pid)
        self._running[pid] = ended, connection
        self._ready.register(ended, selectors.EVENT_READ, ("ended", pid))
        self._ready.register(connection, selectors.EVENT_READ, ("signalled", pid))
        return pid

    def _signalled(self, pid: int) -> None:
        _, connection = self._running[pid]
        numbers = connection.recv(16)
        if not numbers:
            # Whoever asked for it was killed.
            self._ready.unregister(connection)
        for number in numbers or [signal.SIGKILL]:
            os.kill(pid, number)

    def _ended(self, pid: int) -> None:
        ended, connection = self._running.pop(pid)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._ready.unregister(ended)
        os.close(ended)
        with contextlib.suppress(KeyError):
            self._ready.unregister(connection)
        with connection, contextlib.suppress(OSError):
            connection.send(str(status).encode())


def _become(message: bytes, streams: list[int]) -> None:
    """Become what was asked for, except for running it."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 1024)
    folder, count, *rest = message.decode("utf-8", "surrogateescape").split("\0")
    words, variables = rest[: int(count)], rest[int(count) :]
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variable.partition("=")[::2] for variable in variables)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.argv = [os.path.join(os.path.dirname(sys.executable), "envport"), *words]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115


def _load() -> None:
    from importlib import import_module

    from envport.cli.application import _COMMANDS

    for where, _ in _COMMANDS.values():
        import_module(where.partition(":")[0])
    for module in ("serving", "client", "app", "runtimes.selection"):
        import_module(f"envport.{module}")
    for bridge in ("nemo_gym", "openenv", "ors"):
        import_module(f"envport_bridges.{bridge}.routes")
    # What others import when they are called, to serve and to show help.
    for module in (
        *("uvicorn.protocols.http.httptools_impl", "uvicorn.protocols.websockets.websockets_sansio_impl", "uvloop"),
        *("anyio._core._sockets", "typer.rich_utils"),
    ):
        with contextlib.suppress(ImportError):
            import_module(module)
    for module in ("echo", "counter", "catch", "sudoku", "maze", "showcase"):
        import_module(f"envport_envs.{module}")


def main() -> None:
    if sys.argv[1] == "run":
        run(sys.argv[2], sys.argv[3:])
    # Not a child of the tests, some of which count those.
    if os.fork():
        os._exit(0)
    _load()
    assert threading.active_count() == 1, "a thread would not be in the forks"
    gc.collect()
    gc.freeze()
    forks = Forks(sys.argv[2])
    print("ready", flush=True)
    forks.serve()
    from envport.cli.application import main

    try:
        main()
    except SystemExit as ended:
        if not isinstance(ended.code, str):
            _end(ended.code or 0)
        raise


def _end(code: int) -> None:
    """End as Python does, but for freeing all that was loaded, which takes longer than a short command."""
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # Nobody reads it.
            code = 120
    os._exit(code)


if __name__ == "__main__":
    main()
