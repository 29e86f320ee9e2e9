"""Arguments and options that several commands share."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any, cast

import typer

from envport.client.addresses import URL_VARIABLE
from envport.client.choosing import DEFAULT_URL
from envport.errors import InvalidOption

__all__ = [
    "REFERENCE_EXAMPLES",
    "AnyEnvironment",
    "AsJson",
    "AtGateway",
    "NameAtGateway",
    "Reference",
    "Seed",
    "SplitName",
    "TaskIndex",
    "Url",
    "json_object",
    "token",
]

REFERENCE_EXAMPLES = (
    "an installed NAME, ./path/file.py:Class, package.module:Class or scheme:rest; options follow: 'catch?rows=8'"
)

Reference = Annotated[str, typer.Argument(metavar="REFERENCE", help=f"The environment: {REFERENCE_EXAMPLES}.")]
AnyEnvironment = Annotated[
    str | None,
    typer.Argument(
        metavar="ENVIRONMENT",
        help=f"A REFERENCE, which runs here: {REFERENCE_EXAMPLES}; or http://HOST/environments/NAME; or, with --url, a "
        f"NAME there. If not given, the environment of the gateway at {URL_VARIABLE}.",
        show_default=False,
    ),
]
NameAtGateway = Annotated[
    str, typer.Argument(metavar="NAME", help="The environment: its name at the gateway, or its whole address.")
]
AtGateway = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help=f"The gateway that the NAME is at. {URL_VARIABLE} is used only if no environment is given.",
        show_default=False,
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help=f"Address of the gateway.  [{URL_VARIABLE}, else {DEFAULT_URL}]", show_default=False
    ),
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


def token() -> str | None:
    """The token of the user who runs the command."""
    return os.environ.get("ENVPORT_TOKEN") or None


def json_object(option: str, text: str | None) -> Mapping[str, Any] | None:
    """Read an option that is a JSON object, if it is given.

    Raises:
        InvalidOption: It is none.
    """
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidOption(f"{option} is {text!r}; it has to be a JSON object")
    return cast("dict[str, Any]", value)
