"""Clients of the control plane: the same calls, sync and async, raising the same errors as the gateway."""

from envport.client.aio import AsyncClient
from envport.client.sync import Client

__all__ = ["AsyncClient", "Client"]
