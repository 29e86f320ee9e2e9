"""The programs that run in a player's sandbox. On the player's side of the wall, like the process that uses this."""

from __future__ import annotations

import binascii
import contextlib
import errno
import fcntl
import os
import select
import signal
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from envport.player_code.limits import WORK, ProgramLimits

_CHUNK = 65_536
_CHECK_SECONDS = 0.05
_NICENESS = 5
_NOT_FOUND, _NOT_STARTED = 127, 126
_INTERRUPT_SECONDS = 1.0
_LONGEST_ANSWER, _LONGEST_CODE = 1_024, len("255\n")
_NO_CODE = 255
# Above all descriptors that a program is started with.
_ASIDE = 16


class Processes:
    """All processes of the namespace but this one, which is its first."""

    def __init__(self) -> None:
        self._status: dict[int, int | None] = {}

    def start(self, request: dict[str, Any], limits: ProgramLimits, ends: Sequence[int]) -> tuple[int, int]:
        """Start a program whose descriptors from 0 on are these. Returns its process id, and a descriptor of it."""
        pid = os.fork()
        if pid == 0:
            _execute(request, limits, ends)
        self._status[pid] = None
        return pid, os.pidfd_open(pid)

    def reap(self) -> None:
        """Wait for what has ended: a process whose parent ends becomes a child of this one."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                self._note(*ended)

    def end(self) -> None:
        """Kill every process, and wait for all."""
        while True:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            try:
                self._note(*os.waitpid(-1, 0))
            except ChildProcessError:
                return

    def pause(self) -> None:
        """Have every process stand still."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGSTOP)

    def resume(self) -> None:
        """Have every process go on."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGCONT)

    def code(self, pid: int) -> int:
        """The exit code of a started program that has ended; negative for a signal."""
        self.reap()
        return os.waitstatus_to_exitcode(self._status.pop(pid) or 0)

    def _note(self, pid: int, status: int) -> None:
        if pid in self._status:
            self._status[pid] = status


class _Watch:
    """Waits for programs: feeds them, keeps what they write, and says which limit they exceed."""

    def __init__(self, processes: Processes, limits: ProgramLimits, outputs: Sequence[int]):
        self.ended: str | None = None
        self._processes = processes
        self._limits = limits
        self._cut = False
        self._read = {end: bytearray() for end in outputs}
        self._poll = select.poll()
        self._fed: dict[int, memoryview] = {}
        self._closing: set[int] = set()
        for end in outputs:
            self._poll.register(end, select.POLLIN)
        # Nothing is asked meanwhile, so any event means that the other end is gone.
        self._poll.register(0, select.POLLIN)

    def feed(self, end: int, data: bytes, *, close: bool) -> None:
        """Write to a descriptor as it takes it. If it is to be closed then, the program reads its end."""
        self._fed[end] = memoryview(data)
        self._poll.register(end, select.POLLOUT)
        if close:
            self._closing.add(end)

    def until(self, done: Sequence[int], deadline: float) -> int | None:
        """Wait until one of these descriptors can be read; `None` if a limit came first, which `ended` then names."""
        for end in done:
            self._poll.register(end, select.POLLIN)
        check, pause = time.monotonic(), _CHECK_SECONDS
        while True:
            now = time.monotonic()
            if now >= deadline:
                self.ended = "time"
                return None
            if now >= check:
                self._processes.reap()
                # With many processes, looking takes a while. Do not spend more than a tenth of the time on it.
                if (exceeded := self._limits.exceeded()) is not None:
                    self.ended = exceeded
                    return None
                pause = max(_CHECK_SECONDS, 10 * (time.monotonic() - now))
                check = time.monotonic() + pause
            for end, _ in self._poll.poll(1e3 * max(0.0, min(deadline, check) - time.monotonic())):
                if end in done:
                    return end
                self._attend(end)

    def answer(self, code: int, seconds: float) -> dict[str, Any]:
        """What is to be told of it, with all that was written."""
        for end in self._read:
            while self._take(end):
                pass
        texts = [binascii.b2a_base64(data).decode("ascii") for data in self._read.values()]
        out, err = (*texts, "")[:2]
        return {"code": code, "out": out, "err": err, "cut": self._cut, "end": self.ended, "s": seconds}

    def close(self) -> None:
        """Close what was to be closed and has not been fed to its end."""
        for end in self._closing:
            os.close(end)

    def _attend(self, end: int) -> None:
        if end == 0:
            os._exit(0)
        if end in self._fed:
            self._write(end)
        elif not self._take(end):
            self._poll.unregister(end)

    def _write(self, end: int) -> None:
        left = self._fed[end]
        try:
            left = left[os.write(end, left[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            left = left[:0]
        self._fed[end] = left
        if not left:
            self._poll.unregister(end)
            if end in self._closing:
                self._closing.remove(end)
                os.close(end)

    def _take(self, end: int) -> bool:
        """Read some output, and drop what is too much. Returns whether there may be more."""
        try:
            data = os.read(end, _CHUNK)
        except BlockingIOError:
            return False
        kept = self._read[end]
        room = self._limits.output - len(kept)
        self._cut = self._cut or len(data) > room
        kept += data[:room]
        return bool(data)


def run(request: dict[str, Any], processes: Processes, limits: ProgramLimits) -> dict[str, Any]:
    """Run one command, from its start to the end of all that runs in the sandbox."""
    (stdin, write_end), (out, out_end), (err, err_end) = os.pipe(), os.pipe(), os.pipe()
    for end in (write_end, out, err):
        os.set_blocking(end, False)
    watch = _Watch(processes, limits, [out, err])
    watch.feed(write_end, binascii.a2b_base64(request["stdin"]), close=True)
    began = time.monotonic()
    pid, pidfd = processes.start(request, limits, [stdin, out_end, err_end])
    for end in (stdin, out_end, err_end):
        os.close(end)
    try:
        watch.until([pidfd], began + request["seconds"])
    finally:
        os.close(pidfd)
        processes.end()
    seconds = time.monotonic() - began
    answer = watch.answer(processes.code(pid), seconds)
    watch.close()
    os.close(out)
    os.close(err)
    return answer


class Kept:
    """A program that answers one request after another. Between them, all programs stand still.

    It reads requests from descriptor 3, each of which ends with a null byte. When it has done what a request says, it
    writes an exit code and a newline to descriptor 4.
    """

    def __init__(self, request: dict[str, Any], processes: Processes, limits: ProgramLimits):
        self._processes = processes
        self._limits = limits
        (asked, self._ask), (self._answers, answer), (self._out, out) = os.pipe(), os.pipe(), os.pipe()
        for end in (self._ask, self._answers, self._out):
            os.set_blocking(end, False)
        nothing = os.open("/dev/null", os.O_RDONLY)
        theirs = (nothing, out, out, asked, answer)
        self._pid, self._pidfd = processes.start(request, limits, theirs)
        processes.pause()
        for end in {*theirs}:
            os.close(end)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Have the program answer a request, and say whether it is still there (`kept`)."""
        self._processes.resume()
        # An answer that nobody has asked for.
        self._answered()
        watch = _Watch(self._processes, self._limits, [self._out])
        watch.feed(self._ask, binascii.a2b_base64(request["text"]) + b"\0", close=False)
        began = time.monotonic()
        done = watch.until([self._answers, self._pidfd], began + request["seconds"])
        if watch.ended == "time":
            # What only takes too long can be interrupted, and the program keeps its state.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGINT)
            done = watch.until([self._answers, self._pidfd], time.monotonic() + _INTERRUPT_SECONDS)
        code = self._answered() if done == self._answers else None
        if done is None:
            self._processes.end()
        else:
            self._processes.pause()
        if code is not None:
            return {**watch.answer(code, time.monotonic() - began), "kept": True}
        if done is not None:
            # It may have closed its descriptors, or be ending.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            select.select([self._pidfd], [], [])
        return {**watch.answer(self._processes.code(self._pid), time.monotonic() - began), "kept": False}

    def close(self) -> None:
        """Close the ways to it, when it has ended."""
        for end in (self._ask, self._answers, self._out, self._pidfd):
            os.close(end)

    def _answered(self) -> int | None:
        """The exit code that the program has written; `None` if it has written none."""
        try:
            text = os.read(self._answers, _LONGEST_ANSWER)
        except BlockingIOError:
            return None
        # Whatever the player's code has written there: it is only told to the player.
        if not text:
            return None
        return int(text) if text.strip().isdigit() and len(text) <= _LONGEST_CODE else _NO_CODE


def _execute(request: dict[str, Any], limits: ProgramLimits, ends: Sequence[int]) -> NoReturn:
    argv: list[str] = request["argv"]
    try:
        os.setsid()
        for target, end in enumerate([fcntl.fcntl(end, fcntl.F_DUPFD, _ASIDE) for end in ends]):
            os.dup2(end, target)
        os.closerange(len(ends), 65_536)
        # Python ignores some signals, and what is ignored stays so in the program.
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.nice(_NICENESS)
        os.chdir(WORK)
        limits.bind()
        os.execvpe(argv[0], argv, request["env"])
    except (OSError, ValueError) as error:
        missing = isinstance(error, OSError) and error.errno == errno.ENOENT
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        os.write(2, f"{argv[0]}: {why}\n".encode("utf-8", "replace"))
        os._exit(_NOT_FOUND if missing else _NOT_STARTED)
    finally:
        os._exit(_NOT_STARTED)
