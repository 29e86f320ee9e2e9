"""The taskset `envport-taskset` of verifiers, which finds a taskset by the name of a module."""

from envport_bridges.verifiers import EnvportEnv, EnvportTaskset

__all__ = ["EnvportEnv", "EnvportTaskset"]
