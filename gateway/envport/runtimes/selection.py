"""Which runtime is meant by a name."""

from __future__ import annotations

import os

from envport.environment import RuntimeKind
from envport.errors import ConfigurationError
from envport.registry import EnvironmentDefinition
from envport.runtimes.base import Runtime
from envport.runtimes.local import InlineRuntime, ThreadRuntime

__all__ = ["kind_for", "runtime_for"]


def runtime_for(kind: RuntimeKind) -> Runtime:
    """A runtime of that name.

    Raises:
        ConfigurationError: This system does not have what it needs.
    """
    if kind == "process":
        if not hasattr(os, "pidfd_open"):
            raise ConfigurationError("the runtime 'process' needs Linux 5.3 or newer")
        # Not before: it imports what other systems do not have.
        from envport.runtimes.process import ProcessRuntime

        return ProcessRuntime()
    return InlineRuntime() if kind == "inline" else ThreadRuntime()


def kind_for(spec: EnvironmentDefinition, override: RuntimeKind | None) -> RuntimeKind:
    """How an environment is run.

    Args:
        spec: The environment, which declares how.
        override: What whoever serves it says; a sandboxed environment stays one.
    """
    if override is None or spec.cls.sandbox:
        return spec.cls.runtime
    return override
