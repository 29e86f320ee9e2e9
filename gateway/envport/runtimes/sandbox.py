"""Sandboxes of episodes, made by their zygote and by the episode's process itself.

`enter` puts the zygote into namespaces of its own, where the root holds only what the plan allows. A child is then
born into a PID namespace of its own (`fork_newborn`), and `confine` gives it the rest: mounts, network, System V
objects, host name and user of its own, and no capability.

| namespace | of the zygote | of each episode |
|---|---|---|
| user | all capabilities in it, and none outside | a child of the zygote's, without any capability |
| mount | the root, read-only | a copy, with its own `/proc`, `/tmp`, `/dev/shm` and `/dev/pts` |
| PID | the zygote is the first process: all end with it | its process is the first one: its tree ends with it |
| network, IPC, UTS, cgroup | its own, empty | its own, empty |

The mounts of an episode belong to the zygote's user namespace, so nothing in the episode can change them.
It needs Linux 5.14. There, `RLIMIT_NPROC` is counted for each user namespace.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import resource
import signal
import socket
import struct
from pathlib import Path
from typing import NoReturn

from envport.runtimes.sandbox_plan import HOME, SandboxPlan
from envport.runtimes.syscalls import (
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    MNT_DETACH,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    become,
    die_with_parent,
    drop_capabilities,
    forget_session_keys,
    mount,
    mount_read_only,
    pivot_root,
    setns,
    umount,
    unshare,
)

__all__ = ["SandboxForbidden", "confine", "enter", "fork_newborn"]

_NOBODY = 65_534
# The user that a sandboxed episode sees itself as.
_PLAYER = 1000
_OWN = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWCGROUP
_PLAIN = MS_NOSUID | MS_NODEV | MS_NOEXEC
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
_FILES = {
    "passwd": f"root:x:0:0::/:/bin/sh\nplayer:x:{_PLAYER}:{_PLAYER}::{HOME}:/bin/sh\n",
    "group": f"root:x:0:\nplayer:x:{_PLAYER}:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_ASIDE = "/.shown"
_COVERED = ("/tmp/", "/dev/shm/")
_SET_INTERFACE_FLAGS = 0x8914
_INTERFACE_UP = 1
_KERNEL = (5, 14)
_NODE_BYTES = 2_048
_FEWEST_NODES = 1_024


class SandboxForbidden(Exception):
    """This system does not let a sandbox be made; the message says what to install or allow."""


def enter(plan: SandboxPlan) -> None:
    """Go on as the first process of new namespaces, with the plan's root; the calling process waits for the end.

    Where root calls it, the process goes on as the user `nobody`.

    Raises:
        SandboxForbidden: The system does not allow it.
    """
    _require_kernel()
    os.umask(0o022)
    try:
        root = os.geteuid() == 0
        if root:
            # Root reads folders that are closed to others, so it makes the mounts before it becomes somebody else.
            unshare(CLONE_NEWNS)
            _make_root(plan, root)
            with contextlib.suppress(OSError):
                # In some containers there is no other user.
                become(_NOBODY)
        user, group = os.geteuid(), os.getegid()
        unshare(CLONE_NEWUSER | CLONE_NEWPID | _OWN)
        _map_user((user, user), (group, group))
        if not root:
            _make_root(plan, root)
    except OSError as error:
        raise SandboxForbidden(_advice(error)) from error
    first = os.fork()
    if first:
        _wait(first)
    die_with_parent(signal.SIGKILL)
    try:
        _mount_own(plan)
    except OSError as error:
        raise SandboxForbidden(_advice(error)) from error


def fork_newborn() -> int:
    """Fork, as `os.fork` does. The child is the first process of a new PID namespace."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    child: int | None = None
    try:
        unshare(CLONE_NEWPID)
        child = os.fork()
        return child
    finally:
        if child != 0:
            setns(own, CLONE_NEWPID)
        os.close(own)


def confine(plan: SandboxPlan) -> None:
    """Give a newborn process its own mounts, network, IPC objects, host name and user, and drop all capabilities.

    Raises:
        OSError: The system has run out of something.
    """
    user, group = os.geteuid(), os.getegid()
    unshare(_OWN)
    _mount_own(plan)
    _raise_loopback()
    socket.sethostname("sandbox")
    forget_session_keys()
    # The mounts belong to the zygote's user namespace, where this process has no rights from here on.
    unshare(CLONE_NEWUSER)
    _map_user((_PLAYER, user), (_PLAYER, group))
    resource.setrlimit(resource.RLIMIT_NPROC, (plan.max_processes, plan.max_processes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    drop_capabilities()
    os.chdir(HOME)


def _make_root(plan: SandboxPlan, root: bool) -> None:
    """Make a root from nothing, and take the machine's own away."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for folder in ("/tmp/old", "/tmp/new"):
        os.mkdir(folder)
    pivot_root("/tmp", "/tmp/old")
    os.chdir("/")
    mount("tmpfs", "/new", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for path in plan.paths:
        _show(path)
    _make_devices()
    for name, text in _FILES.items():
        os.makedirs("/new/etc", exist_ok=True)
        Path(f"/new/etc/{name}").write_text(text)
    for folder in ("tmp", "proc"):
        os.makedirs(f"/new/{folder}", exist_ok=True)
    mount_read_only("/new")
    _show_proc(root)
    pivot_root("/new", "/new/tmp")
    os.chdir("/")
    umount("/tmp", MNT_DETACH)


def _show(path: str) -> None:
    there, here = f"/old{path}", f"/new{_shown_at(path)}"
    os.makedirs(os.path.dirname(here), exist_ok=True)
    if os.path.islink(there):
        os.symlink(os.readlink(there), here)
    else:
        _bind(there, here)


def _bind(there: str, here: str) -> None:
    os.makedirs(here if os.path.isdir(there) else os.path.dirname(here), exist_ok=True)
    if not os.path.isdir(there):
        Path(here).touch()
    mount(there, here, None, MS_BIND | MS_REC)


def _shown_at(path: str) -> str:
    """Where the zygote's root has a path: elsewhere, if each episode mounts something over it."""
    return f"{_ASIDE}{path}" if path.startswith(_COVERED) else path


def _make_devices() -> None:
    for folder in ("shm", "pts"):
        os.makedirs(f"/new/dev/{folder}")
    for name in _DEVICES:
        Path(f"/new/dev/{name}").touch()
        mount(f"/old/dev/{name}", f"/new/dev/{name}", None, MS_BIND)
    for name, target in _LINKS.items():
        os.symlink(target, f"/new/dev/{name}")


def _show_proc(root: bool) -> None:
    # The kernel lets a user namespace mount a /proc only where a whole one is seen already. The new one covers it.
    if root:
        mount("proc", "/new/proc", "proc", _PLAIN)
    else:
        mount("/old/proc", "/new/proc", None, MS_BIND | MS_REC)


def _mount_own(plan: SandboxPlan) -> None:
    """Mount what differs from process to process, over what was there. One tmpfs bounds all that can be written."""
    mount("proc", "/proc", "proc", _PLAIN)
    size = int(plan.disk_mb * 2**20)
    # A file without content takes no disk, but the kernel's memory: bound the number of files too.
    nodes = max(_FEWEST_NODES, size // _NODE_BYTES)
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=0755,size={size},nr_inodes={nodes}")
    for folder, target in (("/tmp/shm", "/dev/shm"), ("/tmp/tmp", "/tmp")):
        os.mkdir(folder)
        os.chmod(folder, 0o1777)
        mount(folder, target, None, MS_BIND)
    for path in filter(lambda it: it.startswith(_COVERED), plan.paths):
        _bind(_shown_at(path), path)
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")


def _map_user(user: tuple[int, int], group: tuple[int, int]) -> None:
    """Map the user and group of this process in its new user namespace: pairs of the number inside and outside."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user[0]} {user[1]} 1")
    Path("/proc/self/gid_map").write_text(f"{group[0]} {group[1]} 1")


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SET_INTERFACE_FLAGS, struct.pack("16sh14x", b"lo", _INTERFACE_UP))


def _wait(first: int) -> NoReturn:
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    _, status = os.waitpid(first, 0)
    os._exit(min(abs(os.waitstatus_to_exitcode(status)), 255))


def _require_kernel() -> None:
    release = os.uname().release
    version = tuple(int(it) for it in re.findall(r"\d+", release)[:2])
    if version < _KERNEL:
        raise SandboxForbidden(f"a sandbox needs Linux {_KERNEL[0]}.{_KERNEL[1]} or newer; this is Linux {release}")


def _advice(error: OSError) -> str:
    return (
        f"this system does not let a sandbox be made: {error.strerror}. Allow user namespaces "
        "(sysctl user.max_user_namespaces above 0; where they exist, also kernel.unprivileged_userns_clone=1 and "
        "kernel.apparmor_restrict_unprivileged_userns=0). A container has to allow the system calls unshare, setns, "
        "mount and pivot_root, and must not mask /proc: for Docker, --cap-add SYS_ADMIN "
        "--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined; "
        "for Kubernetes, procMount: Unmasked and a seccompProfile that allows them"
    )
