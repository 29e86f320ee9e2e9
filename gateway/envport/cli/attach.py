"""`envport attach`."""

from __future__ import annotations

from typing import Annotated

import anyio
import typer

from envport.cli import console
from envport.cli.attachment import TOKEN_VARIABLE, Attachment
from envport.cli.loading import load_environment, with_file
from envport.cli.options import AsJson, Url, token
from envport.cli.probe import Probe, probe
from envport.client.choosing import environment_at_gateway, gateway_url
from envport.errors import InvalidOption, UnknownEpisode
from envport.references import is_address

__all__ = ["attach"]


def attach(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="The environment: its name at the gateway, its whole address, or any REFERENCE with --stdio. "
            "With --episode, what the client is to call the server.",
        ),
    ] = None,
    url: Url = None,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Let the client start a process of its own; no gateway is needed.")
    ] = False,
    episode: Annotated[
        str | None, typer.Option(metavar="URL", help="MCP address of one episode, as `envport open` prints it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what attaches Claude Code and other MCP clients to an environment, and check that it would work."""
    if stdio:
        if url is not None or episode is not None or name is None:
            raise InvalidOption("--stdio takes the REFERENCE of an environment, and neither --url nor --episode")
        _show(Attachment.to_process(load_environment(name).name, with_file(name)), as_json)
        return
    address = _address(name, url, episode)
    if name is not None and is_address(name):
        name = None
    found = anyio.run(probe, address, token())
    if found.name is not None and not found.tools:
        raise UnknownEpisode(f"there is no episode to play at {address}: it never was, has expired, or was closed")
    wanted = TOKEN_VARIABLE if found.needs_token else None
    _show(Attachment.to_address(address, name or found.name or "episode", wanted), as_json)
    _say(found, address)


def _address(name: str | None, url: str | None, episode: str | None) -> str:
    if episode is not None:
        if url is not None:
            raise InvalidOption("--episode is a whole address: leave --url out")
        return gateway_url(episode)
    if name is None:
        raise InvalidOption("say what to attach to: the NAME of an environment, or --episode URL")
    return environment_at_gateway(name, url).mcp_url


def _show(attachment: Attachment, as_json: bool) -> None:
    if as_json:
        console.document(attachment.settings)
    else:
        attachment.show()


def _say(found: Probe, address: str) -> None:
    if found.name is None:
        console.note(
            f"The gateway at {address} answers and wants a token. ENVPORT_TOKEN is not set here, so nothing more was "
            "checked; the client needs it."
        )
        return
    count = f"{len(found.tools)} tool{'s' if len(found.tools) != 1 else ''}"
    wants = " It wants a token: the client has to find it in ENVPORT_TOKEN." if found.needs_token else ""
    console.note(f"Checked: the gateway answers and lists {count}: {', '.join(found.tools)}.{wants}")
