"""Which gateway a command means, and which environment: one rule for all commands.

A gateway is the one that is given, else `ENVPORT_URL`. An environment is named by a reference, if it runs here,
or by an address, if it is at a gateway. `ENVPORT_URL` never changes which of the two a given text means.
"""

from __future__ import annotations

import os

from envport.client.addresses import URL_VARIABLE, EnvironmentAddress
from envport.client.sync import Client
from envport.errors import InvalidOption
from envport.references import is_address, names_server

__all__ = ["DEFAULT_URL", "any_environment", "environment_at_gateway", "gateway_of_user", "gateway_url"]

DEFAULT_URL = "http://127.0.0.1:8000"


def gateway_of_user(url: str | None) -> str | None:
    """The gateway's address: the given one, else that of `ENVPORT_URL`; `None` if neither is there.

    Raises:
        InvalidOption: It is not an HTTP address.
    """
    chosen = url or os.environ.get(URL_VARIABLE)
    if not chosen:
        return None
    if not names_server(chosen):
        where = "" if url else f" (it is in {URL_VARIABLE})"
        raise InvalidOption(f"{chosen!r} is not the address of a gateway; it has to be like {DEFAULT_URL}{where}")
    return chosen.rstrip("/")


def gateway_url(url: str | None) -> str:
    """The gateway's address: the given one, else that of `ENVPORT_URL`, else the default address on this machine.

    Raises:
        InvalidOption: It is not an HTTP address.
    """
    return gateway_of_user(url) or DEFAULT_URL


def environment_at_gateway(name: str, url: str | None) -> EnvironmentAddress:
    """What a command means that works at a gateway only.

    Args:
        name: Name of the environment, or its address.
        url: The gateway, if it was given.

    Raises:
        InvalidOption: It is not the address of an environment, or both are addresses.
    """
    if is_address(name):
        return _whole(name, url)
    return EnvironmentAddress(gateway_url(url), name)


def any_environment(environment: str | None, url: str | None = None) -> EnvironmentAddress | str:
    """What a command means that takes environments here and at gateways: an address, or the reference of one here.

    Args:
        environment: A reference, an address, or with a `url` a name. If not given, the only environment of the gateway.
        url: The gateway, if it was given.

    Raises:
        InvalidOption: Nothing says which environment is meant.
        GatewayUnreachable: The gateway has to be asked, and does not answer.
    """
    if environment is not None and is_address(environment):
        return _whole(environment, url)
    if environment is not None:
        return environment if url is None else EnvironmentAddress(gateway_url(url), environment)
    gateway = gateway_of_user(url)
    if gateway is None:
        raise InvalidOption(
            f"say which environment: a REFERENCE, or its address, http://HOST/environments/NAME; or set {URL_VARIABLE}"
        )
    with Client(gateway) as client:
        names = [info.name for info in client.environments()]
    if len(names) != 1:
        first = EnvironmentAddress(gateway, names[0] if names else "NAME").url
        raise InvalidOption(f"the gateway at {gateway} serves {', '.join(names) or 'nothing'}: say which, as {first}")
    return EnvironmentAddress(gateway, names[0])


def _whole(address: str, url: str | None) -> EnvironmentAddress:
    if url is not None:
        raise InvalidOption(f"{address!r} is a whole address: leave --url out")
    found = EnvironmentAddress.parse(address)
    if found is None:
        raise InvalidOption(f"{address!r} is not the address of an environment: http://HOST/environments/NAME")
    return found
