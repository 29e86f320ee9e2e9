"""What the sandbox of an environment's episodes holds: an allow-list, made by the gateway as plain data."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from envport.definition import EnvironmentDefinition
from envport.environment import Environment
from envport.errors import ConfigurationError
from envport.runtimes.origin import Origin
from envport.sandboxing import ETC, SYSTEM, importable, imported, interpreter, without_doubles
from envport.secrecy import without_secrets

__all__ = ["HOME", "SandboxPlan", "sandbox_variables"]

HOME = "/tmp"
"""The folder of a sandboxed episode's user: the only one, with `/dev/shm`, that it can write to."""

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
        # Nothing of `/etc` names users, hosts or keys. Files of that kind are written anew (see sandbox.py).
        wanted = [*SYSTEM, *(f"/etc/{name}" for name in ETC), *interpreter(), *importable(), *imported()]
        wanted += [*([origin.file] if origin.file else ()), *_declared(spec.cls)]
        most = spec.prototype.max_processes
        return cls(without_doubles(wanted), spec.prototype.disk_mb, _PROCESSES if most is None else most)

    def data(self) -> dict[str, Any]:
        """The plan as plain data."""
        return asdict(self)


def sandbox_variables(cls: type[Environment], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a sandboxed environment: those that programs need, and those that it names."""
    allowed = {*_VARIABLES, *cls.sandbox_variables}
    seen = {name: value for name, value in environ.items() if name in allowed or name.startswith("LC_")}
    return {**without_secrets(seen), "HOME": HOME, "USER": "player", "LOGNAME": "player"}


def _declared(cls: type[Environment]) -> Iterator[str]:
    beside = Path(getattr(sys.modules[cls.__module__], "__file__", None) or ".").resolve().parent
    for declared in cls.sandbox_paths:
        path = os.path.normpath(beside / os.path.expanduser(declared))
        if not os.path.exists(path):
            raise ConfigurationError(
                f"{cls.__qualname__}.sandbox_paths names {os.fspath(declared)!r}, but there is no {path}"
            )
        yield path
