"""The gateway's side of an episode's process: sends it messages, kills it, and handles its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from envport.errors import WorkerLost
from envport.runtimes.base import ProgressSink
from envport.runtimes.frames import FrameError, Frames, encode
from envport.runtimes.meters import Meter
from envport.runtimes.ownership import PlayerCodeNotice

__all__ = ["EpisodeProcess"]

_CHUNK = 65_536
# A killed process usually ends at once. It can take longer while the kernel waits for its I/O.
_KILL_SECONDS = 5.0
# Limit on the chunks that are read after a process died: a process that it started may keep writing.
_LAST_CHUNKS = 16
_PAGE = os.sysconf("SC_PAGE_SIZE")


class EpisodeProcess:
    """A process that plays one episode.

    The zygote, which is its parent, reports its death. The end of the socket would not be reliable: a process that it
    started may hold the socket open.

    Args:
        sock: The gateway's end of the socketpair.
        on_gone: Called once, when the process is gone and its resources are released.
    """

    def __init__(self, sock: socket.socket, on_gone: Callable[[], None]):
        self.on_lost: Callable[[WorkerLost], None] | None = None
        self.lost: WorkerLost | None = None
        self.meter: Meter | None = None
        self._sock = sock
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._gone = self._loop.create_future()
        self._pidfd: int | None = None
        self._killed = False
        self._given_up: asyncio.TimerHandle | None = None
        self._why: WorkerLost | None = None
        self._player_code: PlayerCodeNotice | None = None
        self._frames = Frames()
        self._unsent = bytearray()
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self._progress: ProgressSink | None = None
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._read)

    @property
    def busy(self) -> bool:
        """Whether a message is waiting for its answer."""
        return self._answer is not None

    @property
    def pid(self) -> int | None:
        """Its process id as the gateway sees it; `None` before it is forked and after its end."""
        if self._pidfd is None:
            return None
        for line in Path(f"/proc/self/fdinfo/{self._pidfd}").read_text("ascii").splitlines():
            if line.startswith("Pid:") and (pid := int(line.split()[1])) > 0:
                return pid
        return None

    def born(self, pidfd: int) -> None:
        """Store the pidfd of the process. Unlike a process id, a pidfd never refers to another process."""
        if self.lost is not None:
            os.close(pidfd)
            return
        self._pidfd = pidfd
        if self._killed:
            self._signal()

    async def ask(
        self,
        message: dict[str, Any],
        seconds: float | None,
        overdue: Callable[[], WorkerLost],
        progress: ProgressSink | None = None,
    ) -> Mapping[str, Any]:
        """Send a message and wait for its answer. Kill the process if that takes too long or is cancelled.

        Args:
            message: Plain data.
            seconds: How long the answer may take.
            overdue: Makes the error if the answer takes longer.
            progress: Receives the progress that is reported before the answer.

        Raises:
            WorkerLost: The process died.
            FrameError: The message is too large.
            TypeError: The message is not plain data.
        """
        frame = encode(message)
        if self.lost is not None:
            raise self.lost
        assert self._answer is None
        self._answer = answer = self._loop.create_future()
        self._progress = progress
        timer = self._loop.call_later(seconds, self._overdue, overdue) if seconds is not None else None
        try:
            self._send(frame)
            return await answer
        except asyncio.CancelledError:
            self.kill()
            raise
        finally:
            self._answer = self._progress = None
            if timer is not None:
                timer.cancel()

    def kill(self, why: WorkerLost | None = None) -> None:
        """Kill the process.

        Args:
            why: The error to report for its loss; the first one given counts.
        """
        self._why = self._why or why
        if self._killed or self.lost is not None:
            return
        self._killed = True
        self._signal()
        self._given_up = self._loop.call_later(_KILL_SECONDS, self.died, None, "")

    def check(self) -> None:
        """Kill the process if its tree has used more than it may."""
        if self.meter is not None and (why := self.meter.over()) is not None:
            self.kill(why)

    async def gone(self) -> None:
        """Wait until the process is gone."""
        await asyncio.shield(self._gone)

    def died(self, status: int | None, stderr: str) -> None:
        """Handle the death of the process.

        Args:
            status: The wait status; `None` if it is not known.
            stderr: The end of its standard error.
        """
        if self.lost is not None:
            return
        if self.meter is not None and self._why is None:
            # The kernel may have killed it for its memory.
            self._why = self.meter.over()
        # An answer that was sent before the death still counts.
        with contextlib.suppress(OSError, FrameError):
            for _ in range(_LAST_CHUNKS):
                if not self._read_some():
                    break
        lost = self._why or WorkerLost("The environment's process was lost.", fault="infrastructure")
        if status is not None:
            lost = _with_status(self._why, status, stderr)
        # If we killed the process because it broke the protocol, the environment is at fault, not the player's code.
        broke = self._why is not None and self._why.reason == "worker_lost"
        if self._player_code is not None and not broke and self._player_code.owns(lost):
            lost.fault = "player"
        self.lost = lost
        self._release()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(lost)
        elif self.on_lost is not None:
            self.on_lost(lost)
        self._gone.set_result(None)
        self._on_gone()

    def memory(self) -> int:
        """Bytes of resident memory that no file backs; 0 once the process is gone."""
        try:
            _, resident, shared, *_ = Path(f"/proc/{self.pid}/statm").read_text("ascii").split()
        except OSError:
            return 0
        return (int(resident) - int(shared)) * _PAGE

    def _signal(self) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _release(self) -> None:
        if self._given_up is not None:
            self._given_up.cancel()
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        if self.meter is not None:
            self.meter.close()

    def _overdue(self, overdue: Callable[[], WorkerLost]) -> None:
        self.kill(overdue())

    def _send(self, frame: bytes) -> None:
        try:
            sent = self._sock.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError:
            # The process is dying; the zygote will report it.
            return
        if sent < len(frame):
            self._unsent += memoryview(frame)[sent:]
            self._loop.add_writer(self._sock.fileno(), self._send_more)

    def _send_more(self) -> None:
        try:
            del self._unsent[: self._sock.send(memoryview(self._unsent)[:_CHUNK])]
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()
        if not self._unsent:
            self._loop.remove_writer(self._sock.fileno())

    def _read(self) -> None:
        try:
            open_still = self._read_some()
        except BlockingIOError:
            return
        except OSError:
            open_still = False
        except FrameError as error:
            self._loop.remove_reader(self._sock.fileno())
            self.kill(WorkerLost(f"The environment's process broke the protocol: {error}."))
            return
        if not open_still:
            # The process usually died, and the zygote reports how. If it is alive, it closed its socket: kill it.
            self._loop.remove_reader(self._sock.fileno())
            self.kill()

    def _read_some(self) -> bool:
        """Read the data that has arrived. Returns false at the end of the socket."""
        data = self._sock.recv(_CHUNK)
        for message in self._frames.feed(data):
            self._take(message)
        return bool(data)

    def _take(self, message: dict[str, Any]) -> None:
        if "progress" in message:
            self._report(message["progress"])
        elif "player" in message:
            self._player_code = PlayerCodeNotice() if message["player"] is True else None
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(message)
        else:
            raise FrameError("nothing was asked")

    def _report(self, progress: Any) -> None:
        match progress:
            case [int() | float() as done, int() | float() | None as total, str() | None as text]:
                # A thread of the environment may report progress after its call has ended.
                if self._progress is not None:
                    self._progress(done, total, text)
            case _:
                raise FrameError("a report of progress is malformed")


def _with_status(why: WorkerLost | None, status: int, stderr: str) -> WorkerLost:
    name = _signal_name(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else None
    reason: Literal["worker_lost", "deadline", "out_of_memory"] = "worker_lost" if why is None else why.reason
    # The process may have died of another cause before our kill reached it.
    if why is not None and (reason != "worker_lost" or name == "SIGKILL"):
        message = why.message
    elif name is not None:
        message = f"The environment's process was ended by {name}."
    else:
        message = f"The environment's process ended with exit code {os.waitstatus_to_exitcode(status)}."
    fault = "environment" if why is None else why.fault
    return WorkerLost(message, reason, fault=fault, signal_name=name, stderr=stderr)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
