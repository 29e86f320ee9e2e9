"""The interface between a replica of the gateway and the hosts of its cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from envport.cluster.messages import AnswerT, HostMessage
from envport.cluster.settings import ClusterSettings
from envport.runtimes import ProgressSink

__all__ = ["HostLost", "Hosts"]


class HostLost(Exception):
    """The host or its machine is gone, and with it every episode that it ran."""


class Hosts(Protocol):
    """The hosts of a cluster, as a replica reaches them."""

    @property
    def settings(self) -> ClusterSettings:
        """The settings of the cluster."""
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
        message: HostMessage[AnswerT],
        life: str | None = None,
        progress: ProgressSink | None = None,
    ) -> AnswerT:
        """Send a request to a host.

        Args:
            host: Name of the host.
            message: The request.
            life: The life of the host in which the episode began, if the request is about an episode.
            progress: Receives progress.

        Raises:
            HostLost: The host is gone, or was restarted.
            EnvportError: The error that the host raised.
        """
        ...
