"""Arguments and options that several commands share."""

from __future__ import annotations

import os
from typing import Annotated
from urllib.parse import urlsplit

import typer

from envport.errors import InvalidOption

__all__ = [
    "DEFAULT_URL",
    "REFERENCE_EXAMPLES",
    "AsJson",
    "Reference",
    "Seed",
    "SplitName",
    "TaskIndex",
    "Url",
    "gateway_url",
    "token",
]

DEFAULT_URL = "http://127.0.0.1:8000"

REFERENCE_EXAMPLES = (
    "an installed NAME, ./path/file.py:Class, package.module:Class or scheme:rest; options follow: 'catch?rows=8'"
)

Reference = Annotated[str, typer.Argument(metavar="REFERENCE", help=f"The environment: {REFERENCE_EXAMPLES}.")]
Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help=f"Address of the gateway.  [ENVPORT_URL, else {DEFAULT_URL}]", show_default=False),
]
SplitName = Annotated[
    str | None, typer.Option(metavar="NAME", help="Collection to take the task from; the first one if not given.")
]
TaskIndex = Annotated[
    int | None, typer.Option(min=0, help="Index of the task in its split; the seed chooses one if not given.")
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="The same task and seed give the same episode; random if not given.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def gateway_url(url: str | None) -> str:
    """The gateway's address: the given one, else `ENVPORT_URL`, else the default address on this machine.

    Raises:
        InvalidOption: It is not an HTTP address.
    """
    chosen = url or os.environ.get("ENVPORT_URL") or DEFAULT_URL
    try:
        parts = urlsplit(chosen)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise InvalidOption(f"{chosen!r} is not the address of a gateway; it has to be like {DEFAULT_URL}")
    return chosen.rstrip("/")


def token() -> str | None:
    """The token of the user who runs the command."""
    return os.environ.get("ENVPORT_TOKEN") or None
