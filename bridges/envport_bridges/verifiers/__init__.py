"""Environments of an envport gateway as a taskset of verifiers v1. Needs only the distribution `envport-client`."""

from envport_bridges.verifiers.environment import EnvportEnv, EnvportEnvConfig
from envport_bridges.verifiers.taskset import EnvportConfig, EnvportTaskset

__all__ = ["EnvportConfig", "EnvportEnv", "EnvportEnvConfig", "EnvportTaskset"]
