"""The `envport` command: as a process of its own, or its main function in this process."""

from __future__ import annotations

import atexit
import functools
import io
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Self

import httpx2
import mcp
import pytest
from mcp.client.streamable_http import streamable_http_client
from patience import patient

from envport.cli import main

FRESH = str(Path(sys.executable).with_name("envport"))
FORKED = Path(__file__).with_name("forked.py")
TOKEN = "a-token-of-the-tests-0123456789"
SECONDS = patient(60)
# As it was before any test has run: `make mutants` has the packages there.
PYTHONPATH = os.environ.get("PYTHONPATH")


def environment(**variables: str) -> dict[str, str]:
    """The variables of a fresh shell, in which nothing of envport is set."""
    fresh = {key: value for key, value in os.environ.items() if not key.startswith("ENVPORT_")}
    # A store in files takes a third of a second of CPU time; its own tests say where it is.
    return fresh | {"TERM": "dumb", "ENVPORT_STORE": "memory"} | variables


@functools.cache
def forks() -> str:
    """A folder at which the command is forked from a process that has loaded it, as long as this process lives."""
    folder = tempfile.mkdtemp(prefix="envport-tests-")
    command = [sys.executable, "-P", str(FORKED), "serve", folder]
    variables = environment()
    # The test that needs the first fork may have changed it; each fork gets that of its own test.
    variables.pop("PYTHONPATH", None)
    if PYTHONPATH is not None:
        variables["PYTHONPATH"] = PYTHONPATH
    loaded = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables, start_new_session=True
    )
    assert loaded.stdin is not None
    assert loaded.stdout is not None
    # It ends with its input, so also where this process ends otherwise, and removes the folder.
    atexit.register(loaded.communicate)
    assert loaded.stdout.readline() == b"ready\n"
    # What was started has ended already: the process that forks is its orphan.
    loaded.wait()
    return folder


def command(*words: str, fresh: bool = False) -> list[str]:
    """The command line of `envport` with these words.

    Args:
        words: What comes after `envport`.
        fresh: Have it start a Python of its own, as users do, and not forked from one that has loaded it.
    """
    return [FRESH, *words] if fresh else [sys.executable, "-I", "-S", str(FORKED), "run", forks(), *words]


def envport(
    *words: str, stdin: str = "", cwd: Path | None = None, fresh: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command(*words, fresh=fresh),
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=SECONDS,
        cwd=cwd,
        env=environment(**variables),
        check=False,
    )


def envport_here(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, with this process's variables and folder: imports are paid for once."""
    path = sys.path.copy()
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors), pytest.raises(SystemExit) as ended:
        main(list(words))
    # A policy's file puts its folder there.
    sys.path[:] = path
    assert isinstance(ended.value.code, int)
    return subprocess.CompletedProcess(words, ended.value.code, out.getvalue(), errors.getvalue())


def refused(*words: str, stdin: str = "", cwd: Path | None = None, fresh: bool = False, **variables: str) -> str:
    """Run a command that has to fail as all do: exit code 2, one line, no traceback; returns the line."""
    return _refusal(envport(*words, stdin=stdin, cwd=cwd, fresh=fresh, **variables))


def refused_here(*words: str) -> str:
    """`refused` in this process, with its variables and folder: a tenth of the CPU time."""
    with _logging_as_it_was():
        return _refusal(envport_here(*words))


@contextmanager
def _logging_as_it_was() -> Iterator[None]:
    """Some commands begin with configuring the log of their process, or with turning it off, and close what it had."""
    root = logging.getLogger()
    disabled = root.manager.disable
    levels = {it: it.level for it in (root, logging.getLogger("envport"), logging.getLogger("uvicorn.error"))}
    handlers, root.handlers[:] = root.handlers[:], []
    try:
        yield
    finally:
        logging.disable(disabled)
        root.handlers[:] = handlers
        for logger, level in levels.items():
            logger.setLevel(level)
        logging.captureWarnings(False)


def _refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done
    assert "Traceback" not in done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    return lines[0]


class Served:
    """A gateway that `envport serve` runs on a free port, entered when it says that it is ready."""

    def __init__(self, *words: str, cwd: Path | None = None, fresh: bool = False, **variables: str):
        # Tests stop it with episodes open, for which it would wait.
        self._words = words if "--drain-seconds" in words else (*words, "--drain-seconds", "0")
        self._cwd = cwd
        self._fresh = fresh
        self._variables = variables

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            self._command(),
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=self._cwd,
            env=environment(**self._variables),
        )
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith("Stop with Ctrl-C."):
                break
        self.greeting = "".join(lines)
        found = re.search(r"^envport .* at (http\S+)$", self.greeting, re.MULTILINE)
        assert found, (self.greeting, self.log)
        self.url = found[1]
        return self

    def _command(self) -> list[str]:
        return command("serve", "--port", "0", *self._words, fresh=self._fresh)

    def __exit__(self, *error: object) -> None:
        try:
            if self.process.poll() is None:
                self.stop()
        finally:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self._log.close()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop it and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)

    @property
    def log(self) -> str:
        """What it wrote to standard error."""
        self._log.seek(0)
        return self._log.read()


@asynccontextmanager
async def player(url: str, mode: str = "auto", headers: dict[str, str] | None = None) -> AsyncIterator[mcp.Client]:
    """A connected MCP client."""
    async with (
        httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http,
        mcp.Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


def text(result: mcp.types.CallToolResult) -> str:
    """The text of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")
