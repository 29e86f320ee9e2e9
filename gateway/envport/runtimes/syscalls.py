"""Linux system calls that Python 3.11 has no functions for, with errors as `OSError` that name the call."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
from typing import Any

__all__ = [
    "CLONE_NEWCGROUP",
    "CLONE_NEWIPC",
    "CLONE_NEWNET",
    "CLONE_NEWNS",
    "CLONE_NEWPID",
    "CLONE_NEWUSER",
    "CLONE_NEWUTS",
    "MNT_DETACH",
    "MS_BIND",
    "MS_NODEV",
    "MS_NOEXEC",
    "MS_NOSUID",
    "MS_PRIVATE",
    "MS_REC",
    "become",
    "die_with_parent",
    "drop_capabilities",
    "forget_session_keys",
    "mount",
    "mount_read_only",
    "pivot_root",
    "set_dumpable",
    "set_subreaper",
    "setns",
    "umount",
    "unshare",
]

CLONE_NEWNS = 0x0002_0000
CLONE_NEWCGROUP = 0x0200_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x4_0000
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_KEEPCAPS = 8
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4

_CAPABILITY_VERSION = 0x2008_0522
_LAST_CAPABILITY = 63

# Glibc has no function for this call before 2.36. Its number is the same on every architecture.
_MOUNT_SETATTR = 442
_MOUNT_ATTR_RDONLY = 1
_MOUNT_ATTR_NOSUID = 2
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000

_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219}
_KEYCTL_JOIN_SESSION_KEYRING = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _do(name: str, *arguments: Any) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _prctl(option: int, *arguments: int) -> None:
    _do("prctl", option, *(ctypes.c_ulong(it) for it in (*arguments, 0, 0, 0, 0)[:4]))


def unshare(flags: int) -> None:
    """Enter new namespaces. A new PID namespace holds the children to come, not this process."""
    _do("unshare", flags)


def setns(namespace: int, kind: int) -> None:
    """Enter a namespace; for a PID namespace, children to come are born into it."""
    _do("setns", namespace, kind)


def mount(source: str | None, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    """Mount a file system, or a folder at a second place (`MS_BIND`)."""
    given = [None if it is None else os.fsencode(it) for it in (source, target, kind)]
    try:
        _do("mount", *given, ctypes.c_ulong(flags), None if options is None else options.encode())
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} ({source or kind} on {target})") from None


def mount_read_only(target: str) -> None:
    """Make a mount and all that are mounted below it read-only, without set-user-ID programs."""
    attributes = struct.pack("QQQQ", _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID, 0, 0, 0)
    _do(
        "syscall",
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        os.fsencode(target),
        ctypes.c_uint(_AT_RECURSIVE),
        attributes,
        ctypes.c_size_t(len(attributes)),
    )


def umount(target: str, flags: int = 0) -> None:
    """Take a mount away."""
    _do("umount2", os.fsencode(target), flags)


def pivot_root(new: str, old: str) -> None:
    """Make a mount the root, and move the present one."""
    _do("pivot_root", os.fsencode(new), os.fsencode(old))


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, int(number))


def set_subreaper() -> None:
    """Become the parent of descendants whose own parent ends, so that all of them can be found."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_dumpable(dumpable: bool) -> None:
    """Whether other processes of the same user may read this one's memory, variables and descriptors."""
    _prctl(_PR_SET_DUMPABLE, int(dumpable))


def become(user: int) -> None:
    """Have root become another user and group for good, who keeps root's capabilities until they are dropped.

    Raises:
        OSError: This process may not, or the user namespace has no such user.
    """
    _prctl(_PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    header, held = struct.pack("Ii", _CAPABILITY_VERSION, 0), ctypes.create_string_buffer(24)
    _do("capget", header, held)
    # Each half is: effective, permitted, inheritable. The change of the user has emptied the first.
    _, low, low_inherited, _, high, high_inherited = struct.unpack("6I", held.raw)
    _do("capset", header, struct.pack("6I", low, low, low_inherited, high, high, high_inherited))
    # The change has also given the process's files in /proc to root.
    set_dumpable(True)


def drop_capabilities() -> None:
    """Give up all capabilities for good: nothing that is executed later can gain any."""
    for number in range(_LAST_CAPABILITY + 1):
        try:
            _prctl(_PR_CAPBSET_DROP, number)
        except OSError:
            # The kernel knows fewer.
            break
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    _do("capset", struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24))
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def forget_session_keys() -> None:
    """Replace the inherited session keyring by an empty one. Does nothing where there are no keyrings."""
    number = _KEYCTL.get(platform.machine())
    if number is not None:
        _libc.syscall(ctypes.c_long(number), ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), None)
