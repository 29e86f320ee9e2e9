"""The process that fills the database of a gateway, so that the gateway's own process does not have to.

Two threads of one Python process would wait for each other: a call would then cost twice as much.

It is started by `Drainer`, and reads JSON lines from its standard input: first a `DrainTask`, then positions up to
which to drain. On standard output, it says what it has done. When its input ends, the gateway is gone: it drains the
rest and ends.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from envport.errors import ConfigurationError
from envport.secrecy import hide_memory
from envport.trajectories.database import Database, said
from envport.trajectories.drain import HEARTBEAT_SECONDS, Drain
from envport.trajectories.drainer import DrainTask
from envport.trajectories.journal import Position

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
# What is left then stays in the journal.
_LAST_SECONDS = 8.0


class _Input:
    """Reads lines from standard input, with a time limit."""

    def __init__(self) -> None:
        self._rest = b""
        self.ended = False

    def lines(self, seconds: float) -> list[bytes]:
        """The lines that have come, after waiting for the first one."""
        if self.ended or not select.select([0], [], [], seconds)[0]:
            return []
        data = os.read(0, 2**16)
        self.ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


class _Telling(logging.Handler):
    """Sends log records to the gateway."""

    def emit(self, record: logging.LogRecord) -> None:
        _tell(log=[record.levelno, record.getMessage()])


def _tell(**said: Any) -> None:
    data = json.dumps(said).encode() + b"\n"
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        # The gateway is gone, so nobody reads this any more.
        return


class _Work:
    """Drains, and tries again as long as the database is away.

    Args:
        task: What to do.
        given: Where the positions come from.
    """

    def __init__(self, task: DrainTask, given: _Input):
        self._task = task
        self._given = given
        self._end = (task.number, task.offset)
        self._drain: Drain | None = None
        self._pause = 0.0
        self._deadline: float | None = None

    def run(self, lines: list[bytes]) -> None:
        """Work until the input ends and everything is written, or time is over.

        Args:
            lines: Positions that have come already.
        """
        while True:
            lines = lines or self._given.lines(self._pause or HEARTBEAT_SECONDS)
            if lines:
                self._end = tuple(json.loads(lines[-1]))
            lines = []
            if self._try():
                if self._given.ended:
                    return
                self._pause = 0.0
            elif self._over():
                return

    def _try(self) -> bool:
        """Write what there is, and return whether the database took it."""
        try:
            if self._drain is None:
                task = self._task
                self._drain = Drain(Path(task.journal), Database(task.store), (task.number, task.offset))
            self._drain.up_to(None if self._given.ended else self._end, _tell_of)
        except (SQLAlchemyError, ConfigurationError) as error:
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            _tell(trouble=said(error))
            return False
        return True

    def _over(self) -> bool:
        """Whether the gateway is gone, and the time limit for reaching the database is over."""
        if not self._given.ended:
            return False
        now = time.monotonic()
        self._deadline = self._deadline or now + _LAST_SECONDS
        if now + self._pause > self._deadline:
            return True
        time.sleep(self._pause)
        return False


def _tell_of(at: Position, handles: list[str]) -> None:
    _tell(at=at, handles=handles)


def _main() -> None:
    # These are for the gateway, which ends this process by the end of its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hide_memory()
    logging.basicConfig(level=logging.WARNING, handlers=[_Telling()])
    given = _Input()
    first: list[bytes] = []
    while not first and not given.ended:
        first = given.lines(HEARTBEAT_SECONDS)
    # Another gateway may have drained the journal of a gateway that is gone, and deleted it.
    with suppress(FileNotFoundError):
        if first:
            task = DrainTask(**json.loads(first[0]))
            os.nice(task.niceness)
            _Work(task, given).run(first[1:])


if __name__ == "__main__":
    _main()
