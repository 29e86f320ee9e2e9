"""A process that has loaded an environment and forks a copy of itself for each episode.

The gateway starts it as a new process and never forks it from itself. It has one thread and does nothing else. So a
fork is safe and takes a few milliseconds, and the copies share its memory. As their parent, it also learns how they
die.

The gateway and the zygote exchange packets over a socketpair (`SOCK_SEQPACKET`). Each packet is a JSON object:

| from | message | descriptor |
|---|---|---|
| gateway | `{"load": origin, "sandbox": plan or null}`, once | what its `prepare` yielded, pickled |
| zygote | `{"loaded": bytes of private memory}`, `{"failed": traceback}` or `{"forbidden": advice}` | |
| gateway | `{"fork": id}` | the episode's end of a socketpair |
| zygote | `{"forked": id}` | the process (pidfd) |
| zygote | `{"unforked": id, "why": text}` | |
| zygote | `{"died": id, "status": wait status, "stderr": text}` | |

When the gateway's end is closed, for whatever reason, the zygote kills its children and ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import selectors
import signal
import socket
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from envport.definition import EnvironmentDefinition
from envport.runtimes.child import rehearse, settle_in, work
from envport.runtimes.frames import MAX_PACKET, STDERR_TAIL
from envport.runtimes.origin import Origin
from envport.runtimes.sandbox import SandboxForbidden, enter, fork_newborn
from envport.runtimes.sandbox_plan import SandboxPlan
from envport.runtimes.syscalls import die_with_parent, set_subreaper

__all__ = ["main"]

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class _Child:
    """An episode's process.

    Attributes:
        id: The number that the gateway gave it.
        pid: Its process id.
        stderr: Descriptor from which its standard error is read.
        tail: The end of its standard error.
    """

    id: int
    pid: int
    stderr: int
    tail: bytes = b""

    def read(self) -> bool:
        """Read what it wrote. Returns whether there may be more."""
        try:
            data = os.read(self.stderr, 65536)
        except BlockingIOError:
            return False
        self.tail = (self.tail + data)[-STDERR_TAIL:]
        return bool(data)


def main(control: int) -> NoReturn:
    """Load the environment that the gateway names, then fork on its requests.

    Args:
        control: Descriptor of this end of the socketpair.
    """
    die_with_parent(signal.SIGTERM)
    sock = socket.socket(fileno=control)
    sock.set_inheritable(False)
    try:
        packet, descriptors, _, _ = socket.recv_fds(sock, MAX_PACKET, 1)
        if not packet:
            os._exit(0)
        message = json.loads(packet)
        sandbox = SandboxPlan(**message["sandbox"]) if message["sandbox"] is not None else None
        if sandbox is not None:
            enter(sandbox)
        # PYTHONPATH was set to pass the gateway's path; the environment must see the original value.
        _restore_environ(message["pythonpath"])
        spec = Origin(**message["load"]).load()
        _ = spec.tools
        # After the environment's module, which may define the classes of what was prepared.
        with os.fdopen(descriptors[0], "rb") as file:
            prepared = pickle.load(file)
    except SandboxForbidden as error:
        _send(sock, {"forbidden": str(error)})
        os._exit(1)
    except BaseException:
        _send(sock, {"failed": traceback.format_exc()[-20_000:]})
        os._exit(1)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    rehearse()
    # All episodes share the present objects. A garbage collection would write to their pages and so copy them.
    gc.collect()
    gc.disable()
    gc.freeze()
    _Zygote(sock, spec, sandbox, prepared).run()


def _restore_environ(pythonpath: str | None) -> None:
    os.environ.pop("PYTHONPATH", None)
    if pythonpath is not None:
        os.environ["PYTHONPATH"] = pythonpath


def _send(sock: socket.socket, message: dict[str, Any], *descriptors: int) -> None:
    # Ignore a closed gateway here; `_obey` notices it when it reads.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        socket.send_fds(sock, [json.dumps(message).encode("ascii")], descriptors)


class _Zygote:
    def __init__(self, sock: socket.socket, spec: EnvironmentDefinition, sandbox: SandboxPlan | None, prepared: Any):
        self._sock = sock
        self._spec = spec
        self._sandbox = sandbox
        self._prepared = prepared
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._ending = False
        self._signals, wake = socket.socketpair()
        self._wake = wake
        for end in (self._signals, wake):
            end.setblocking(False)

    def run(self) -> NoReturn:
        set_subreaper()
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _note)
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(self._sock, selectors.EVENT_READ)
        self._selector.register(self._signals, selectors.EVENT_READ)
        _send(self._sock, {"loaded": _private_memory()})
        while not self._ending:
            # Handle dead children first, because their episodes wait for the report.
            for key, _ in sorted(self._selector.select(), key=lambda event: event[0].fileobj is not self._signals):
                self._attend(key)
        self._leave()

    def _end(self, *_: object) -> None:
        self._ending = True

    def _attend(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._signals:
            with contextlib.suppress(BlockingIOError):
                self._signals.recv(4096)
            self._reap()
        elif key.fileobj is self._sock:
            self._obey()
        else:
            child: _Child = key.data
            # An event of this round may belong to a child that was just reaped and whose pipe is closed.
            if child.pid in self._children and not child.read():
                self._selector.unregister(child.stderr)

    def _obey(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._sock, MAX_PACKET, 1)
        except ConnectionResetError:
            data, descriptors = b"", []
        if not data:
            self._ending = True
            return
        number: int = json.loads(data)["fork"]
        try:
            self._fork(number, descriptors[0])
        except OSError as error:
            _send(self._sock, {"unforked": number, "why": str(error)})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _fork(self, number: int, sock: int) -> None:
        ours, theirs = os.pipe()
        try:
            pid = os.fork() if self._sandbox is None else fork_newborn()
        except OSError:
            os.close(ours)
            os.close(theirs)
            raise
        if pid == 0:
            try:
                work(settle_in(sock, theirs, self._sandbox), self._spec, self._prepared)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(theirs)
        os.set_blocking(ours, False)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        self._children[pid] = child = _Child(number, pid, ours)
        self._selector.register(ours, selectors.EVENT_READ, child)
        # The child is not reaped before the next round, so this process id cannot belong to another process yet.
        pidfd = os.pidfd_open(pid)
        try:
            _send(self._sock, {"forked": number}, pidfd)
        finally:
            os.close(pidfd)

    def _reap(self) -> None:
        """Kill what dead children left behind, and report the deaths."""
        died = False
        while (pid := _dead()) is not None:
            died = True
            child = self._children.get(pid)
            if child is not None:
                # Kill its group before it is reaped, while no other process can get its id.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            if child is not None:
                self._bury(child, status)
        if died:
            self._kill_strays()

    def _bury(self, child: _Child, status: int) -> None:
        del self._children[child.pid]
        # Read once, as much as a pipe holds: another process may have the pipe open and write for ever.
        child.read()
        with contextlib.suppress(KeyError):
            self._selector.unregister(child.stderr)
        os.close(child.stderr)
        stderr = child.tail.decode("utf-8", "replace")
        _send(self._sock, {"died": child.id, "status": status, "stderr": stderr})

    def _kill_strays(self) -> None:
        """Kill orphans of dead children. Each child is a subreaper (see child.py), so its orphans are ours now."""
        try:
            pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()
        except OSError:
            return
        for pid in map(int, pids):
            if pid not in self._children:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def _leave(self) -> NoReturn:
        """Kill all children, and end when none is left."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._sock.close()
        # A child that cannot be killed must not keep this process alive.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)
        for pid in list(self._children):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        while True:
            try:
                pid, _ = os.waitpid(-1, 0)
            except ChildProcessError:
                os._exit(0)
            self._children.pop(pid, None)
            self._kill_strays()


def _dead() -> int | None:
    """The process id of a child that has ended and is not reaped yet."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found is not None else None


def _note(*_: object) -> None:
    """Do nothing: a handler has to be installed so that the signal is written to the wake-up descriptor."""


def _private_memory() -> int:
    """Bytes of resident memory that no file backs: the amount that a forked copy starts with."""
    _, resident, shared, *_ = Path("/proc/self/statm").read_text("ascii").split()
    return (int(resident) - int(shared)) * _PAGE


if __name__ == "__main__":
    main(int(sys.argv[1]))
