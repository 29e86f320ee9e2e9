"""Clients of the control plane, sync and async, with the same calls. They raise the same errors as the gateway."""

from envport.client.aio import AsyncClient
from envport.client.sync import Client

__all__ = ["AsyncClient", "Client"]
