"""Becomes another user, in a user namespace of its own, and starts a program. A script for the standard library alone.

    python newcomer.py USER WORD...

Root makes the sandbox, because root can read every folder to be shown. This is its first program: root's id has rights
that no namespace takes away, such as to write to `/proc/sys`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import NoReturn

__all__ = ["main"]

_NEW_USER = 0x1000_0000
_SET_DUMPABLE = 4
_DROP_FROM_BOUNDS = 24
_CAPABILITIES = 64
_NOT_FOUND = 127


def main(user: int, words: list[str]) -> NoReturn:
    """Go on as the program, as that user, without any capability."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    # The change has given the process's files in /proc to root.
    libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0)
    if libc.unshare(_NEW_USER) != 0:
        raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{user} {user} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    for capability in range(_CAPABILITIES):
        libc.prctl(_DROP_FROM_BOUNDS, capability, 0, 0, 0)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        print(f"{words[0]} cannot be started: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(_NOT_FOUND)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
