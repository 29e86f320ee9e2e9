"""The gateway's side of the process that fills the database."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from envport.errors import StoreUnavailable
from envport.trajectories.changes import Changes
from envport.trajectories.journal import Journal, Position

__all__ = ["DrainTask", "Drainer"]

logger = logging.getLogger(__name__)

# Waiting makes larger groups, which cost less for each call: in groups of 64, one takes four times the CPU time of one
# in groups of 2,000. Waiting is safe: the journal has the calls, and a read has them written at once.
_GROUP_SECONDS = 1.0
_WATCHED_SECONDS = 0.05
# The gateway itself comes first.
_NICENESS = 10
_RESTART_SECONDS = 1.0
_SILENCE_SECONDS = 60.0
_STOP_SECONDS = 10.0


@dataclass(frozen=True)
class DrainTask:
    """What such a process does.

    Attributes:
        store: Folder or URL of the store.
        journal: Folder of the journal.
        number: Number of the segment to begin with.
        offset: Offset in that segment.
        niceness: How much the process is to stand back for others.
    """

    store: str
    journal: str
    number: int
    offset: int
    niceness: int

    def line(self) -> bytes:
        """The task as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


class Drainer:
    """Has the database filled from the journal, by a process of its own, which starts when there is something to do.

    If the database is away, it tries again until it is back. Nothing is lost in the meantime: it is in the journal. If
    the process is lost, another one takes its place.

    Args:
        journal: The journal of this gateway.
        store: Folder or URL of the store.
        changes: Told of what was written.
        at_once: Whether to write as soon as there is something, because callers wait for it.
    """

    def __init__(self, journal: Journal, store: str, changes: Changes, *, at_once: bool = False):
        self._journal = journal
        self._store = store
        self._changes = changes
        self._at_once = at_once
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: Position = (0, 0)
        self._committed: Position = (0, 0)
        self._timer: asyncio.Handle | None = None
        self._waiting: list[_Waiting] = []
        self._rest = b""
        self._trouble: str | None = None
        self._told_at = float("-inf")

    def start(self) -> None:
        """Take the running event loop. To be called before anything is written."""
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """Say that there is something new in the journal."""
        if self._timer is None and self._loop is not None:
            watched = self._changes.watched
            seconds = 0.0 if self._at_once else _WATCHED_SECONDS if watched else _GROUP_SECONDS
            self._timer = self._loop.call_later(seconds, self._ask)

    async def flush(self, seconds: float, *, retry: bool = False) -> None:
        """Wait until everything that is in the journal now is in the database.

        Args:
            seconds: How long to wait.
            retry: Whether to wait on if the database is away.

        Raises:
            StoreUnavailable: The database did not take it in time.
        """
        target = self._journal.end
        if self._committed >= target:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(target, done, retry))
        self._ask()
        try:
            async with asyncio.timeout(seconds):
                await done
        except TimeoutError:
            raise _unavailable(self._trouble or f"it has not answered for {seconds:g} s") from None

    async def stop(self) -> bool:
        """Have the rest written, and end the process.

        Returns:
            Whether everything is in the database.
        """
        if self._timer is not None:
            self._timer.cancel()
        if self._process is None and self._committed < self._journal.end:
            self._begin()
        if self._process is None:
            return True
        assert self._loop is not None
        assert self._process.stdout is not None
        self._loop.remove_reader(self._process.stdout.fileno())
        self._heard(await asyncio.to_thread(_last_words, self._process))
        self._process = None
        return self._committed >= self._journal.end

    def _ask(self) -> None:
        """Ask the process to write what is in the journal now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._process is None:
            self._begin()
        if self._asked < self._journal.end:
            self._send(json.dumps(self._journal.end).encode() + b"\n")
            self._asked = self._journal.end

    def _begin(self) -> None:
        assert self._loop is not None
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "envport.trajectories.drain_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdout is not None
        self._loop.add_reader(self._process.stdout.fileno(), self._read)
        self._send(
            DrainTask(self._store, str(self._journal.path), *self._committed, 0 if self._at_once else _NICENESS).line()
        )
        self._asked = self._committed

    def _send(self, line: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
        except BrokenPipeError:
            # It is gone. `_read` notices that too, and starts another one.
            return

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        data = self._process.stdout.read(2**16)
        if data:
            self._heard(data)
            return
        assert self._loop is not None
        assert self._process.stdin is not None
        self._loop.remove_reader(self._process.stdout.fileno())
        self._process.stdout.close()
        self._process.stdin.close()
        code = self._process.wait()
        self._process = None
        logger.error("the process that fills the trajectory store was lost (%d); another one is started", code)
        if self._timer is None:
            self._timer = self._loop.call_later(_RESTART_SECONDS, self._ask)

    def _heard(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            said: dict[str, Any] = json.loads(line)
            if (log := said.get("log")) is not None:
                logger.log(*log)
            if (trouble := said.get("trouble")) is not None:
                self._note(trouble)
            if (at := said.get("at")) is not None:
                self._trouble = None
                self._reached(tuple(at))
                self._changes.publish(frozenset(said["handles"]))

    def _reached(self, position: Position) -> None:
        self._committed = position
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if one.target > position:
                self._waiting.append(one)
            elif not one.done.done():
                one.done.set_result(None)

    def _note(self, trouble: str) -> None:
        self._trouble = trouble
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if one.retry:
                self._waiting.append(one)
            elif not one.done.done():
                one.done.set_exception(_unavailable(trouble))
        now = time.monotonic()
        if now - self._told_at >= _SILENCE_SECONDS:
            self._told_at = now
            logger.error(
                "the trajectory store cannot be written to: %s; episodes go on, and what happens is kept in %s until "
                "it can",
                trouble,
                self._journal.path,
            )


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Who waits until the database has everything up to a position."""

    target: Position
    done: asyncio.Future[None]
    retry: bool


def _unavailable(why: str) -> StoreUnavailable:
    return StoreUnavailable(f"The trajectory store cannot be written to now: {why}")


def _last_words(process: subprocess.Popen[bytes]) -> bytes:
    """End a process by the end of its input, and return what it still says."""
    try:
        said, _ = process.communicate(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    return said
