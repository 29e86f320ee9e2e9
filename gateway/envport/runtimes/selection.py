"""Selects a runtime by its name."""

from __future__ import annotations

import os
from collections.abc import Mapping

from envport.definition import EnvironmentDefinition
from envport.environment import RuntimeKind
from envport.errors import ConfigurationError
from envport.runtimes.base import Runtime
from envport.runtimes.local import InlineRuntime, ThreadRuntime

__all__ = ["in_another_process", "kind_for", "limits_kept_by", "runtime_for"]

_HASH_SEED = "PYTHONHASHSEED"


def runtime_for(kind: RuntimeKind) -> Runtime:
    """The runtime with that name.

    Raises:
        ConfigurationError: This system cannot run it.
    """
    if kind == "process":
        return _processes({})
    return InlineRuntime() if kind == "inline" else ThreadRuntime()


def in_another_process() -> Runtime:
    """A runtime in processes of their own, in which the hashes of text are others than here.

    Raises:
        ConfigurationError: This system cannot run it.
    """
    seed = "1" if os.environ.get(_HASH_SEED) != "1" else "2"
    return _processes({_HASH_SEED: seed})


def _processes(variables: Mapping[str, str]) -> Runtime:
    if not hasattr(os, "pidfd_open"):
        raise ConfigurationError("the runtime 'process' needs Linux 5.3 or newer")
    # Import late: the module needs parts of Python that only Linux has.
    from envport.runtimes.process import ProcessRuntime

    return ProcessRuntime(variables)


def limits_kept_by(kind: RuntimeKind) -> str | None:
    """What keeps the limits on memory, processes and CPU time; `None` if the runtime has no such limits."""
    if kind != "process":
        return None
    from envport.runtimes.cgroups import ControlGroups

    groups = ControlGroups.find()
    return f"control groups (version {groups.version})" if groups is not None else "looking at the processes"


def kind_for(spec: EnvironmentDefinition, override: RuntimeKind | None) -> RuntimeKind:
    """The kind of runtime for an environment.

    Args:
        spec: The environment, which declares its kind.
        override: The kind that the operator chose. A sandboxed environment stays sandboxed. One that runs its player's
            code, or has a thread of its own, is never inline.
    """
    never_inline = spec.cls.runs_player_code or spec.cls.own_thread
    if override is None or spec.cls.sandbox or (override == "inline" and never_inline):
        return spec.cls.runtime
    return override
