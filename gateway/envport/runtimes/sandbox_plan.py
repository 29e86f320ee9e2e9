"""What the sandbox of an environment's episodes holds: an allow-list, made by the gateway as plain data."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from envport.definition import EnvironmentDefinition
from envport.environment import Environment
from envport.errors import ConfigurationError
from envport.runtimes.origin import Origin
from envport.secrecy import without_secrets

__all__ = ["HOME", "SandboxPlan", "sandbox_variables"]

HOME = "/tmp"
"""The folder of a sandboxed episode's user: the only one, with `/dev/shm`, that it can write to."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Nothing here names users, hosts or keys. Files of that kind are written anew (see sandbox.py).
_ETC = (
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
_PROCESSES = 512
_VARIABLES = frozenset({"LANG", "LANGUAGE", "LD_LIBRARY_PATH", "PATH", "PYTHONHASHSEED", "TZ"})


@dataclass(frozen=True, slots=True)
class SandboxPlan:
    """What the root of a sandbox holds, and the limits that the sandbox itself keeps.

    Attributes:
        paths: Files and folders of this machine that are seen, read-only, at the same place.
        disk_mb: MiB that an episode may write to `/tmp` and `/dev/shm` together.
        max_processes: Processes and threads that an episode may have.
    """

    paths: tuple[str, ...]
    disk_mb: float
    max_processes: int

    @classmethod
    def of(cls, spec: EnvironmentDefinition, origin: Origin) -> SandboxPlan:
        """The plan for an environment.

        Raises:
            ConfigurationError: A path that the environment declares does not exist.
        """
        wanted = [*_SYSTEM, *(f"/etc/{name}" for name in _ETC), *_interpreter(), *_importable()]
        wanted += [*_own(origin), *_declared(spec.cls)]
        most = spec.prototype.max_processes
        return cls(_without_doubles(wanted), spec.prototype.disk_mb, _PROCESSES if most is None else most)

    def data(self) -> dict[str, Any]:
        """The plan as plain data."""
        return asdict(self)


def sandbox_variables(cls: type[Environment], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a sandboxed environment: those that programs need, and those that it names."""
    allowed = {*_VARIABLES, *cls.sandbox_variables}
    seen = {name: value for name, value in environ.items() if name in allowed or name.startswith("LC_")}
    return {**without_secrets(seen), "HOME": HOME, "USER": "player", "LOGNAME": "player"}


def _interpreter() -> Iterator[str]:
    for folder in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix):
        yield folder
        yield os.path.realpath(folder)


def _importable() -> Iterator[str]:
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


def _own(origin: Origin) -> Iterator[str]:
    """The file of the class, and what has been imported without being on the import path, as editable packages are."""
    if origin.file:
        yield origin.file
    for name, module in list(sys.modules.items()):
        # A file that was given by its path belongs to another environment, or is the one above.
        if "." not in name and name != "__main__" and not name.startswith("envport_file_"):
            yield from map(os.path.abspath, getattr(module, "__path__", ()))
            if (file := getattr(module, "__file__", None)) is not None:
                yield os.path.abspath(file)


def _declared(cls: type[Environment]) -> Iterator[str]:
    beside = Path(getattr(sys.modules[cls.__module__], "__file__", None) or ".").resolve().parent
    for declared in cls.sandbox_paths:
        path = os.path.normpath(beside / os.path.expanduser(declared))
        if not os.path.exists(path):
            raise ConfigurationError(
                f"{cls.__qualname__}.sandbox_paths names {os.fspath(declared)!r}, but there is no {path}"
            )
        yield path


def _without_doubles(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths that exist and lie in no other one, each with what it is a link to."""
    found = {path for path in paths if os.path.lexists(path)}
    found |= {os.path.realpath(path) for path in found if os.path.islink(path)}
    return tuple(sorted(path for path in found if not any(str(it) in found for it in Path(path).parents)))
