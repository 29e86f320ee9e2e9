"""The sandbox of a player's code, as a command line of bubblewrap. It is an allow-list: nothing else is seen."""

from __future__ import annotations

import glob
import inspect
import json
import os
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from envport.player_code import limits as inside
from envport.player_code import programs, warden
from envport.sandboxing import find_bubblewrap, shown, system_folders, unused_user

__all__ = ["VARIABLES", "PlayerLimits", "Readable", "SandboxView", "start"]

Readable = Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]]
"""Files and folders of this machine. If it is a mapping, by their paths in the sandbox; else the paths are the same."""

_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime")
VARIABLES = {
    "PATH": f"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{sys.base_prefix}/bin",
    "HOME": inside.WORK,
    "USER": "player",
    "LOGNAME": "player",
    "LANG": "C.UTF-8",
}
"""Environment variables that the code sees. Nothing of this process's own is among them."""
# There is no package to import from, so the modules come as text: each its name and its source, the last one runs.
_BOOT = """
import sys, types
names, sources = sys.argv[2::2], sys.argv[3::2]
for name, source in zip(names, sources):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), vars(module))
module.main()
"""
_TMP_SHARE, _SHM_SHARE = 4, 4
_MOST_OUTPUT = 16 * 2**20


@dataclass(frozen=True, slots=True)
class PlayerLimits:
    """What the code of a player may use, all of its processes together.

    Attributes:
        memory_mb: MiB of memory, with what the kernel keeps of each file beside its content. A program that asks for
            more gets an error; beyond it, the run is ended.
        disk_mb: MiB in the working folder. `/tmp` and `/dev/shm` each hold a quarter of it in addition.
        processes: Processes at one time.
        output_bytes: Bytes that are kept of standard output, and of standard error, at most 16 MiB. What is more is
            dropped.
    """

    memory_mb: float = 512
    disk_mb: float = 256
    processes: int = 64
    output_bytes: int = 65_536

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"PlayerLimits.{name} is {getattr(self, name)!r}; allowed: numbers above 0")
        if self.output_bytes > _MOST_OUTPUT:
            # Both outputs come in one message.
            raise ValueError(f"PlayerLimits.output_bytes is {self.output_bytes!r}; allowed: at most {_MOST_OUTPUT}")


@dataclass(frozen=True, slots=True)
class SandboxView:
    """What a sandbox shows beside the system.

    Attributes:
        readable: Files and folders of this machine that the code may read.
        links: Symbolic links that are made in the sandbox: where each leads, by its path.
    """

    readable: Readable = ()
    links: Mapping[str, str] = field(default_factory=dict[str, str])

    def words(self) -> Iterator[str]:
        """Bubblewrap's words for it.

        Raises:
            ValueError: Something that is to be readable does not exist, or a path in the sandbox is not absolute.
        """
        named = self.readable.items() if isinstance(self.readable, Mapping) else ((None, it) for it in self.readable)
        for path, source in named:
            there = os.path.abspath(os.path.expanduser(source))
            if not os.path.exists(there):
                raise ValueError(f"the code of the player is to read {there}, which does not exist")
            yield from shown(_absolute(path or there), source=there)
        for path, target in self.links.items():
            yield from shown(_absolute(path), "--symlink", target)


def _absolute(path: str) -> str:
    if not os.path.isabs(path):
        raise ValueError(f"{path!r} is to be in the sandbox of the player's code; allowed: absolute paths")
    return path


def start(limits: PlayerLimits, view: SandboxView) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a sandbox whose first process waits for requests.

    Args:
        limits: What the code may use.
        view: What it shows beside the system.

    Raises:
        ConfigurationError: This system cannot run it; the message says what to install or allow.
        ValueError: What is to be shown does not exist.
    """
    bwrap = find_bubblewrap("code of the player")
    user = unused_user()
    settings = {
        "user": user,
        "memory": int(limits.memory_mb * 2**20),
        "disk": int(limits.disk_mb * 2**20),
        "processes": limits.processes,
        "output": limits.output_bytes,
    }
    python = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-c", _BOOT, json.dumps(settings), *_sources()]
    command = [bwrap, *_namespaces(user), *_root(limits, view), "--", *python]
    ours, theirs = socket.socketpair()
    with theirs, ExitStack() as on_error:
        on_error.callback(ours.close)
        process = subprocess.Popen(
            command,
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={},
            start_new_session=True,
        )
        on_error.pop_all()
    return ours, process


def _sources() -> Iterator[str]:
    for module in (inside, programs, warden):
        yield module.__name__
        yield inspect.getsource(module)


def _namespaces(user: int | None) -> Iterator[str]:
    yield from ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    yield from ("--hostname", "sandbox", "--new-session", "--as-pid-1", "--cap-drop", "ALL", "--clearenv")
    # Root's sandbox is made without a user namespace: its first process becomes another user, and makes one then.
    yield from (("--unshare-user",) if user is None else ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"))
    for name, value in VARIABLES.items():
        yield from ("--setenv", name, value)


def _root(limits: PlayerLimits, view: SandboxView) -> Iterator[str]:
    yield from system_folders()
    yield from ("--perms", "0755", "--dir", "/etc")
    for name in _ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    if not _within(sys.base_prefix, ["/usr"]):
        yield from shown(sys.base_prefix)
    for path in _hidden():
        yield from ("--tmpfs", path, "--remount-ro", path)
    yield from view.words()
    disk = int(limits.disk_mb * 2**20)
    yield from ("--proc", "/proc", "--bind", "/proc/sys/user", "/proc/sys/user", "--dev", "/dev")
    yield from ("--perms", "1777", "--size", f"{disk // _SHM_SHARE}", "--tmpfs", "/dev/shm", "--remount-ro", "/dev")
    yield from ("--perms", "1777", "--size", f"{disk // _TMP_SHARE}", "--tmpfs", "/tmp")
    yield from ("--perms", "0777", "--size", f"{disk}", "--tmpfs", inside.WORK, "--chdir", inside.WORK)
    yield from ("--remount-ro", "/")


def _hidden() -> list[str]:
    """Folders with installed packages, which are the environment's and not the player's: answers may be in them."""
    seen = ["/usr", sys.base_prefix]
    found = {path for prefix in (*seen, "/usr/local") for path in glob.glob(f"{prefix}/lib*/python*/*-packages")}
    library = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    for path in map(os.path.abspath, sys.path):
        if os.path.isdir(path) and _within(path, seen) and path not in library and path not in seen:
            found.add(path)
    found = {path for path in map(os.path.realpath, found) if not path.endswith("/lib-dynload")}
    return sorted(path for path in found if not _within(path, found - {path}))


def _within(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
