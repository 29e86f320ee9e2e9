"""`envport episodes fork`."""

from __future__ import annotations

from typing import Annotated

import typer

from envport.cli import console
from envport.cli.opening import TokenForAgent, show_opened
from envport.cli.options import AsJson, Url
from envport.client import Client
from envport.client.choosing import gateway_url

__all__ = ["fork"]


def fork(
    episode_id: Annotated[str, typer.Argument(metavar="ID", help="The episode: live, ended, or only in the store.")],
    step: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="How many of its calls the copy begins with; all of them if not given.",
            show_default=False,
        ),
    ] = None,
    token_for_agent: TokenForAgent = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Open a copy of an episode at one of its calls. The episode and the copy go on apart."""
    with Client(gateway_url(url)) as client:
        opened = client.fork(episode_id, step, mint_token=token_for_agent)
        name = client.episode(opened.episode_id).environment
    if as_json:
        console.document(opened.model_dump(mode="json"))
    else:
        show_opened(name, opened)
