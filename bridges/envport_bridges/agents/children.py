"""Servers that we start for ourselves, each in its own process, which ends when we do."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import IO, Any

from envport.errors import ConfigurationError, error_from_code
from envport.secrecy import without_secrets

__all__ = ["ChildServer"]

_STOP_SECONDS = 20.0


class ChildServer:
    """A Python module that serves something until its standard input ends.

    It reads one line of JSON: what to serve, and its token, which so is in no file, argument or variable. It answers
    with one line of JSON: `url` and whatever else it tells, or an `error` with `code` and `message`.

    Attributes:
        told: What it answered.
        process: Its process.

    Args:
        module: The module.
        asked: What to serve.
        what: What to call it in messages, such as `the gateway for catch`.

    Raises:
        ConfigurationError: It cannot be served.
    """

    def __init__(self, module: str, asked: Mapping[str, Any], what: str):
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=without_secrets(os.environ),
            # Keep Ctrl-C away from it: we still have to end there what we began.
            start_new_session=True,
        )
        _pipe(self.process.stdin).write(json.dumps(asked) + "\n")
        _pipe(self.process.stdin).flush()
        self.told: dict[str, Any] = json.loads(_pipe(self.process.stdout).readline() or "{}")
        if "url" not in self.told:
            self.process.wait(_STOP_SECONDS)
            self._close()
            error = self.told.get("error", {"code": "configuration", "message": f"{what} broke"})
            raise error_from_code(error["code"], error["message"]) from ConfigurationError(what)
        atexit.register(self.stop)

    @property
    def url(self) -> str:
        """Its address."""
        return self.told["url"]

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Stop it. Stopping it again changes nothing."""
        atexit.unregister(self.stop)
        if self.running:
            _pipe(self.process.stdin).close()
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._close()

    def _close(self) -> None:
        _pipe(self.process.stdin).close()
        _pipe(self.process.stdout).close()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
