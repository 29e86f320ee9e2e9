"""`envport client`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envport.client import Client
from envport.client.addresses import EnvironmentAddress
from envport.client.choosing import any_environment
from envport.errors import ConfigurationError
from envport_bridges.client_source.source import client_source
from envport_bridges.rollouts import Rollouts

__all__ = ["client"]


def client(
    environment: Annotated[
        str | None,
        typer.Argument(
            metavar="ENVIRONMENT",
            help="A REFERENCE, as `envport serve` takes it; or http://HOST/environments/NAME; or, with --url, a NAME "
            "there.",
            show_default=False,
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="The gateway that serves it.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write it to this file. It is printed if not given.", show_default=False)
    ] = None,
) -> None:
    """Write a Python client of an environment: a class with a typed method for each tool."""
    found = any_environment(environment, url)
    if isinstance(found, EnvironmentAddress):
        with Client(found.gateway) as control:
            source = client_source(control.environment(found.name), found.url)
    else:
        source = client_source(Rollouts(found).environment, found)
    if output is None:
        print(source, end="")
        return
    if output.suffix != ".py":
        raise ConfigurationError(f"{str(output)!r} is no Python module: its name has to end in .py")
    output.write_text(source, "utf-8")
