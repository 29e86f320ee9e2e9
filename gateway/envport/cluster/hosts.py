"""The seam between a replica of the gateway and the hosts of its cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from envport.cluster.settings import ClusterSettings
from envport.runtimes import ProgressSink

__all__ = ["HostLost", "Hosts"]


class HostLost(Exception):
    """The host is gone, or its machine is, and with it every episode that it ran."""


class Hosts(Protocol):
    """Reaches the hosts."""

    @property
    def settings(self) -> ClusterSettings:
        """What the cluster runs."""
        ...

    def run(self) -> AbstractAsyncContextManager[None]:
        """Keep a host on every machine, for as long as this runs."""
        ...

    def names(self) -> Sequence[str]:
        """The hosts on which episodes may be opened now."""
        ...

    async def ask(
        self,
        host: str,
        method: str,
        fields: dict[str, Any],
        life: str | None = None,
        progress: ProgressSink | None = None,
    ) -> Any:
        """Have a host do something.

        Args:
            host: Its name.
            method: See `Host.ask`.
            fields: The arguments.
            life: The life of the host that the episode began in, if it is about an episode.
            progress: Where progress goes.

        Raises:
            HostLost: It is gone, or began another life.
            EnvportError: Whatever it raised.
        """
        ...
