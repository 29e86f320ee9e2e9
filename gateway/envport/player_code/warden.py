"""The first process of a player's sandbox: runs commands for the environment, and ends everything that they start.

It is given to a Python of its own as source text, with the modules `limits` and `programs`: all three import nothing
but each other and the standard library. Requests come over descriptor 0, a socket. When the other end of it is closed,
for whatever reason, this process ends, and with it the PID namespace and all that is in it.

It belongs to the player's side of the wall. The environment believes nothing of what it answers.
"""

from __future__ import annotations

import binascii
import ctypes
import json
import os
import select
import signal
import stat
import struct
import sys
from typing import Any, NoReturn

from envport.player_code.limits import WORK, ProgramLimits
from envport.player_code.programs import Kept, Processes, run

MAX_MESSAGE = 64 * 2**20

_LENGTH = struct.Struct(">I")
_OOM_SCORE = "1000"
_NEW_USER = 0x1000_0000
_SET_DUMPABLE = 4
_DROP_FROM_BOUNDS = 24
_CAPABILITIES = 64
_IDLE_SECONDS = 1.0
# As base64, this and the rest of the message are below the limit.
_MOST_READ = (MAX_MESSAGE - 65_536) // 4 * 3


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
    warden = _Warden(ProgramLimits(settings))
    _send({"ready": True})
    while True:
        warden.idle()
        request = json.loads(_receive(length_of(_receive(_LENGTH.size))))
        _send(warden.do(request))


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


class _Warden:
    """Does what the environment asks for."""

    def __init__(self, limits: ProgramLimits):
        self._limits = limits
        self._processes = Processes()
        self._kept: list[Kept] = []

    def idle(self) -> None:
        """Wait for a request. Programs that are kept stand still, and the limits hold for them."""
        while self._kept and not select.select([0], [], [], _IDLE_SECONDS)[0]:
            self._processes.pause()
            self._processes.reap()
            if self._limits.exceeded() is not None:
                self._processes.end()

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request."""
        match request["op"]:
            case "run":
                self._processes.end()
                return run(request, self._processes, self._limits)
            case "start":
                self._kept.append(Kept(request, self._processes, self._limits))
                return {"number": len(self._kept) - 1}
            case "ask":
                number: int = request["number"]
                answer = self._kept[number].ask(request)
                if not answer["kept"]:
                    # Nobody asks it again.
                    self._kept[number].close()
                return answer
            case "write":
                return _guarded(_write, request)
            case _:
                return _guarded(_read, request)


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
