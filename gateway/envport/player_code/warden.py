"""The first process of a player's sandbox: runs commands for the environment, and ends everything that they start.

It is given to a Python of its own as source text, so it imports nothing but the standard library. Requests come over
descriptor 0, a socket. When the other end of it is closed, for whatever reason, this process ends, and with it the PID
namespace and all that is in it.

It belongs to the player's side of the wall. The environment believes nothing of what it answers.
"""

from __future__ import annotations

import binascii
import contextlib
import ctypes
import errno
import json
import os
import resource
import select
import signal
import stat
import struct
import sys
import time
from typing import Any, NoReturn

WORK = "/work"
MAX_MESSAGE = 64 * 2**20

_LENGTH = struct.Struct(">I")
_CHUNK = 65_536
_CHECK_SECONDS = 0.05
_NICENESS = 5
_OPEN_FILES = 256
_OOM_SCORE = "1000"
_NEW_USER = 0x1000_0000
_SET_DUMPABLE = 4
_DROP_FROM_BOUNDS = 24
_CAPABILITIES = 64
_NOT_FOUND, _NOT_STARTED = 127, 126
_WRITABLE = (WORK, "/tmp", "/dev/shm")
# What the kernel keeps of a file on a tmpfs: its inode, its name, and the target of a short link.
_NODE_BYTES = 1_536
# As base64, this and the rest of the message are below the limit.
_MOST_READ = (MAX_MESSAGE - _CHUNK) // 4 * 3


def pack(message: dict[str, Any]) -> bytes:
    """A message as bytes: a length of 4 bytes, then JSON."""
    body = json.dumps(message).encode("ascii")
    if len(body) > MAX_MESSAGE:
        raise ValueError(f"more than {MAX_MESSAGE // 2**20} MiB at once")
    return _LENGTH.pack(len(body)) + body


def length_of(head: bytes) -> int:
    """The length of the message after these 4 bytes."""
    (length,) = _LENGTH.unpack(head)
    if length > MAX_MESSAGE:
        raise ValueError(f"more than {MAX_MESSAGE // 2**20} MiB at once")
    return length


def main() -> NoReturn:
    """Answer requests until the socket is closed. The settings are JSON, in the only argument."""
    settings = json.loads(sys.argv[1])
    os.umask(0o022)
    # The kernel keeps every other signal of this namespace from its first process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _settle_in(settings["user"])
    limits = _Limits(settings)
    _send({"ready": True})
    while True:
        request = json.loads(_receive(length_of(_receive(_LENGTH.size))))
        if request["op"] == "run":
            _send(_Run(request, limits).play())
        else:
            _send(_guarded(_write if request["op"] == "write" else _read, request))


def _settle_in(user: int | None) -> None:
    """Become the given user, in a user namespace in which no further one can be made.

    With one of its own, a program could mount file systems, whose memory no limit counts.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        # The change has given the process's files in /proc to root.
        libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0)
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(_NEW_USER) != 0:
        raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")
    _put("/proc/self/setgroups", "deny")
    _put("/proc/self/uid_map", f"{uid} {uid} 1")
    _put("/proc/self/gid_map", f"{gid} {gid} 1")
    _put("/proc/sys/user/max_user_namespaces", "0")
    for capability in range(_CAPABILITIES):
        libc.prctl(_DROP_FROM_BOUNDS, capability, 0, 0, 0)
    # If the machine runs out of memory, the kernel ends a sandbox before anything else.
    _put("/proc/self/oom_score_adj", _OOM_SCORE)
    # From here on, no program of the same user can read or trace this process.
    libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def _put(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _receive(size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(0, size - len(data))
        if not part:
            os._exit(0)
        data += part
    return data


def _send(message: dict[str, Any]) -> None:
    left = memoryview(pack(message))
    while left:
        left = left[os.write(0, left) :]


class _Limits:
    def __init__(self, settings: dict[str, Any]):
        self.memory = int(settings["memory"])
        self.file = int(settings["disk"])
        self.processes = int(settings["processes"])
        self.output = int(settings["output"])

    def bind(self) -> None:
        """Bind the calling process and all that it starts."""
        # One more: this process counts too.
        _limit(resource.RLIMIT_NPROC, self.processes + 1)
        _limit(resource.RLIMIT_DATA, self.memory)
        _limit(resource.RLIMIT_FSIZE, self.file)
        _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
        _limit(resource.RLIMIT_CORE, 0)

    def exceeded(self) -> str | None:
        """The limit that all processes together exceed: `memory` or `processes`."""
        used = _shared_memory() + _memory_of_nodes()
        pids = [entry for entry in os.listdir("/proc") if entry.isdigit() and entry != "1"]
        if len(pids) > self.processes:
            return "processes"
        for pid in pids:
            used += _memory_of(pid)
        return "memory" if used > self.memory else None


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _memory_of(pid: str) -> int:
    """Bytes of memory of a process. What it shares with others is divided by their number."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        return next((int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:")), 0)
    return 0


def _shared_memory() -> int:
    """Bytes of System V shared memory, which stays when its processes end."""
    try:
        with open("/proc/sysvipc/shm", "rb") as file:
            next(file)
            return sum(int(line.split()[14]) for line in file)
    except (OSError, ValueError, IndexError, StopIteration):
        return 0


def _memory_of_nodes() -> int:
    """Bytes of memory that the files themselves take, beside their content. The disk limit counts only that."""
    used = 0
    for folder in _WRITABLE:
        with contextlib.suppress(OSError):
            state = os.statvfs(folder)
            used += (state.f_files - state.f_ffree) * _NODE_BYTES
    return used


class _Run:
    """One command, from its start to the end of its whole tree."""

    def __init__(self, request: dict[str, Any], limits: _Limits):
        self._request = request
        self._limits = limits
        self._stdin = memoryview(binascii.a2b_base64(request["stdin"]))
        self._read: dict[int, bytearray] = {}
        self._write_end: int | None = None
        self._cut = False
        self._poll = select.poll()
        self._ended: str | None = None

    def play(self) -> dict[str, Any]:
        ours, theirs = self._pipes()
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            _execute(self._request, self._limits, theirs)
        for end in theirs:
            os.close(end)
        pidfd = os.pidfd_open(pid)
        try:
            self._watch(pid, pidfd, began + self._request["seconds"])
        finally:
            os.close(pidfd)
            status = _end_all(pid)
        seconds = time.monotonic() - began
        self._drain()
        for end in (*ours[1:], *([self._write_end] if self._write_end is not None else [])):
            os.close(end)
        code = os.waitstatus_to_exitcode(status)
        texts = [binascii.b2a_base64(self._read[end]).decode("ascii") for end in ours[1:]]
        return {"code": code, "out": texts[0], "err": texts[1], "cut": self._cut, "end": self._ended, "s": seconds}

    def _pipes(self) -> tuple[list[int], list[int]]:
        (stdin, self._write_end), (out, out_end), (err, err_end) = os.pipe(), os.pipe(), os.pipe()
        for end in (self._write_end, out, err):
            os.set_blocking(end, False)
        for end in (out, err):
            self._read[end] = bytearray()
            self._poll.register(end, select.POLLIN)
        self._poll.register(self._write_end, select.POLLOUT)
        # Nothing is asked during a run, so any event means that the other end is gone.
        self._poll.register(0, select.POLLIN)
        return [self._write_end, out, err], [stdin, out_end, err_end]

    def _watch(self, pid: int, pidfd: int, deadline: float) -> None:
        self._poll.register(pidfd, select.POLLIN)
        check, pause = time.monotonic(), _CHECK_SECONDS
        while True:
            now = time.monotonic()
            if now >= deadline:
                self._ended = "time"
                return
            if now >= check:
                _bury_orphans(pid)
                self._ended = self._limits.exceeded()
                # With many processes, looking takes a while. Do not spend more than a tenth of the time on it.
                pause = max(_CHECK_SECONDS, 10 * (time.monotonic() - now))
                check = time.monotonic() + pause
                if self._ended is not None:
                    return
            for end, _ in self._poll.poll(1e3 * max(0.0, min(deadline, check) - time.monotonic())):
                if end == pidfd:
                    return
                self._attend(end)

    def _attend(self, end: int) -> None:
        if end == 0:
            os._exit(0)
        if end == self._write_end:
            self._feed(end)
        elif not self._take(end):
            self._poll.unregister(end)

    def _feed(self, end: int) -> None:
        try:
            self._stdin = self._stdin[os.write(end, self._stdin[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            self._stdin = self._stdin[:0]
        if not self._stdin:
            self._poll.unregister(end)
            os.close(end)
            self._write_end = None

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

    def _drain(self) -> None:
        for end in self._read:
            while self._take(end):
                pass


def _execute(request: dict[str, Any], limits: _Limits, ends: list[int]) -> NoReturn:
    argv: list[str] = request["argv"]
    try:
        os.setsid()
        for target, end in enumerate(ends):
            os.dup2(end, target)
        os.closerange(3, 65_536)
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


def _bury_orphans(pid: int) -> None:
    """Reap what has ended, except the command itself: whose parent ends becomes a child of this process."""
    while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None and ended.si_pid != pid:
        os.waitpid(ended.si_pid, 0)


def _end_all(pid: int) -> int:
    """Kill every other process of the namespace, and return the wait status of one of them."""
    found = 0
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            ended, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return found
        if ended == pid:
            found = status


def _guarded(do: Any, request: dict[str, Any]) -> dict[str, Any]:
    try:
        os.chdir(WORK)
        return do(request)
    except OSError as error:
        return {"failed": os.strerror(error.errno) if error.errno else str(error)}
    except ValueError as error:
        return {"failed": str(error)}


def _write(request: dict[str, Any]) -> dict[str, Any]:
    path: str = request["path"]
    if folder := os.path.dirname(path):
        os.makedirs(folder, exist_ok=True)
    data = binascii.a2b_base64(request["data"])
    # A pipe that the player has put there must not hold this process up.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o644)
    try:
        os.fchmod(file, 0o755 if request["executable"] else 0o644)
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]
    finally:
        os.close(file)
    return {"written": len(data)}


def _read(request: dict[str, Any]) -> dict[str, Any]:
    file = os.open(request["path"], os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ValueError("it is no file")
        most, data = min(request["most"], _MOST_READ), b""
        while len(data) <= most and (part := os.read(file, most + 1 - len(data))):
            data += part
    finally:
        os.close(file)
    if len(data) > most:
        raise ValueError(f"it is larger than {most} bytes")
    return {"data": binascii.b2a_base64(data).decode("ascii")}


if __name__ == "__main__":
    main()
