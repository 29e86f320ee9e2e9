"""`envport client`: writes a typed Python client of an environment from its listing."""

from envport_bridges.client_source.source import client_source

__all__ = ["client_source"]
