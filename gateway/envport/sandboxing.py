"""What sandboxes have in common: what of this machine a program needs to see, and how bubblewrap is told to show it."""

from __future__ import annotations

import importlib.machinery
import os
import random
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from envport.errors import ConfigurationError

__all__ = [
    "ADVICE",
    "ETC",
    "SYSTEM",
    "find_bubblewrap",
    "importable",
    "imported",
    "interpreter",
    "shown",
    "system_folders",
    "unused_user",
    "without_doubles",
]

ADVICE = (
    "Allow namespaces: sysctl user.max_user_namespaces above 0 and, where they exist, "
    "kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0. In Docker: --cap-add "
    "SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt "
    "systempaths=unconfined. It takes bubblewrap 0.7 or newer."
)
"""What to allow where sandboxes cannot be made."""

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""The folders of the system's programs and libraries."""

# Nothing here names users, hosts or keys.
ETC = (
    "alternatives",
    "ca-certificates.conf",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
)
"""Settings in `/etc` that programs read."""

_SET_ID_CAPABILITIES = 0b1100_0000
_SYS_ADMIN_CAPABILITY = 1 << 21
_MOST_USERS = 2**31
_FEWEST_USERS = 65_536


def find_bubblewrap(what: str, otherwise: str = "") -> str:
    """The program `bwrap`.

    Args:
        what: What needs it, for the message.
        otherwise: What else may be done, for the message.

    Raises:
        ConfigurationError: It is not installed, or this is not Linux.
    """
    if sys.platform != "linux":
        raise ConfigurationError(f"{what} needs Linux, where bubblewrap runs it in a sandbox{otherwise}")
    found = shutil.which("bwrap")
    if found is None:
        raise ConfigurationError(
            f"{what} needs bubblewrap, which is not installed: apt-get install bubblewrap{otherwise}"
        )
    return found


def unused_user() -> int | None:
    """A user id that nobody else has, if this process may take one; else code runs as this process's user."""
    held = int(_status("CapEff"), 16)
    if os.geteuid() != 0 or not held & _SYS_ADMIN_CAPABILITY or held & _SET_ID_CAPABILITIES != _SET_ID_CAPABILITIES:
        return None
    with open("/proc/self/uid_map", encoding="ascii") as file:
        most = min(_MOST_USERS, max(sum(map(int, line.split()[::2])) for line in file))
    # In a user namespace, there may be no other users.
    return random.SystemRandom().randrange(most // 2, most - 2) if most >= _FEWEST_USERS else None


def _status(field: str) -> str:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next(line.split()[1] for line in file if line.startswith(f"{field}:"))


def system_folders() -> Iterator[str]:
    """Bubblewrap's words that show the system's programs and libraries."""
    for path in SYSTEM:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        else:
            yield from ("--ro-bind-try", path, path)


def shown(path: str, how: str = "--ro-bind", source: str | None = None) -> Iterator[str]:
    """Bubblewrap's words that show a path of this machine.

    Args:
        path: The path in the sandbox.
        how: Bubblewrap's option.
        source: The path of this machine; the same one if not given.
    """
    # Open the parent folders: bubblewrap closes them where this machine does, and the code runs as another user.
    for folder in reversed(Path(path).parents[:-1]):
        yield from ("--perms", "0755", "--dir", str(folder))
    yield from (how, source or path, path)


def interpreter() -> Iterator[str]:
    """The folders of the Python that runs this."""
    for folder in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix):
        yield folder
        yield os.path.realpath(folder)


def importable() -> Iterator[str]:
    """Modules and packages on the import path: never the whole folder, where keys and data may lie beside them."""
    installed = tuple(f"{os.path.realpath(it)}/" for it in (sys.prefix, sys.base_prefix))
    for folder in map(os.path.abspath, sys.path):
        whole = f"{os.path.realpath(folder)}/".startswith(installed) or os.path.basename(folder) == "site-packages"
        if whole or not os.path.isdir(folder):
            yield folder
        else:
            yield from (entry.path for entry in os.scandir(folder) if _is_importable(entry))


def _is_importable(entry: os.DirEntry[str]) -> bool:
    if entry.name.endswith((*importlib.machinery.all_suffixes(), ".dist-info", ".egg-info")):
        return True
    return entry.name.isidentifier() and os.path.isfile(f"{entry.path}/__init__.py")


def imported() -> Iterator[str]:
    """What has been imported without being on the import path, as editable packages are."""
    for name, module in list(sys.modules.items()):
        # A file that was given by its path belongs to another environment.
        if "." not in name and name != "__main__" and not name.startswith("envport_file_"):
            yield from map(os.path.abspath, getattr(module, "__path__", ()))
            if (file := getattr(module, "__file__", None)) is not None:
                yield os.path.abspath(file)


def without_doubles(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths that exist and lie in no other one, each with what it is a link to."""
    found = {path for path in paths if os.path.lexists(path)}
    found |= {os.path.realpath(path) for path in found if os.path.islink(path)}
    return tuple(sorted(path for path in found if not any(str(it) in found for it in Path(path).parents)))
