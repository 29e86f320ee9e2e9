"""Where an environment is played: at a running gateway, or at one that is started for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from envport.client import AsyncClient, Client
from envport.client.addresses import EnvironmentAddress
from envport.errors import InvalidAccess, InvalidOption, Unauthenticated
from envport.references import is_address
from envport.types import EnvironmentInfo
from envport_bridges.agents.gateways.hosted import Hosted

__all__ = ["Place"]


@dataclass(frozen=True)
class Place:
    """An environment at a gateway, and the token for the control plane.

    Attributes:
        url: Address of the gateway.
        name: Name of the environment.
        token: Token of the control plane, if the gateway has tokens.
        hosted: The gateway's process, if it was started for this place.
    """

    url: str
    name: str
    token: str | None
    hosted: Hosted | None = None

    _open: ClassVar[dict[str, Place]] = {}

    @classmethod
    def of(cls, env: str) -> Place:
        """The place for a reference. Within this process, the same text always gives the same place.

        Args:
            env: Address of an environment (`http://HOST/environments/NAME`), whose token is in `ENVPORT_TOKEN`; or
                a reference as for `envport serve`, for which a gateway is started.

        Raises:
            InvalidOption: The address is not that of an environment.
            ConfigurationError: The environment cannot be served.
        """
        place = cls._open.get(env)
        if place is None or (place.hosted is not None and not place.hosted.child.running):
            place = cls._open[env] = cls._at(env) if is_address(env) else cls._hosting(env)
        return place

    @classmethod
    def _at(cls, address: str) -> Place:
        found = EnvironmentAddress.parse(address)
        if found is None:
            raise InvalidOption(f"{address!r} is not the address of an environment: http://HOST/environments/NAME")
        return cls(found.gateway, found.name, os.environ.get("ENVPORT_TOKEN") or None)

    @classmethod
    def _hosting(cls, reference: str) -> Place:
        hosted = Hosted.start(reference)
        return cls(hosted.url, hosted.name, hosted.token, hosted)

    @classmethod
    def stop_all(cls) -> None:
        """Stop the gateways that were started for places."""
        for place in cls._open.values():
            if place.hosted is not None:
                place.hosted.stop()
        cls._open.clear()

    def control(self) -> AsyncClient:
        """A client of the control plane."""
        # Pass an empty token for none. With `None`, the client would use `ENVPORT_TOKEN`.
        return AsyncClient(self.url, token=self.token or "")

    def control_sync(self) -> Client:
        """A sync client of the control plane."""
        return Client(self.url, token=self.token or "")

    def info(self) -> EnvironmentInfo:
        """The environment.

        Raises:
            GatewayUnreachable: The gateway does not answer.
            UnknownEnvironment: The gateway does not serve this environment.
        """
        with self.control_sync() as control:
            return control.environment(self.name)

    def require_tokens(self) -> None:
        """Check that the control plane refuses requests without the control token.

        Raises:
            InvalidAccess: The gateway answers without a token.
        """
        with Client(self.url, token="") as anyone:
            try:
                anyone.environments()
            except Unauthenticated:
                return
        raise InvalidAccess(
            f"the gateway at {self.url} has no tokens, so an agent could read its reward there: start it with "
            "ENVPORT_TOKEN set, or give the environment by name, and a gateway of its own is started for it"
        )
