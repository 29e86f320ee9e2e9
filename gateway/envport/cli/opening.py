"""`envport open`."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from envport.cli import console
from envport.cli.attachment import TOKEN_VARIABLE, Attachment
from envport.cli.observation import ObservationPrinter
from envport.cli.options import AsJson, NameAtGateway, Seed, SplitName, TaskIndex, Url, token
from envport.client import Client
from envport.client.choosing import environment_at_gateway
from envport.types import OpenedEpisode

__all__ = ["TokenForAgent", "open_episode", "show_opened"]

TokenForAgent = Annotated[
    bool, typer.Option("--token-for-agent", help="Mint a token that plays this episode and opens nothing else.")
]


def open_episode(
    name: NameAtGateway,
    url: Url = None,
    split: SplitName = None,
    task: TaskIndex = None,
    seed: Seed = None,
    reward_in_meta: Annotated[
        bool, typer.Option("--reward-in-meta", help="Put rewards into _meta of MCP results. Not for evaluation.")
    ] = False,
    token_for_agent: TokenForAgent = False,
    as_json: AsJson = False,
) -> None:
    """Open an episode at a gateway, and print its address and how to attach a player to it."""
    found = environment_at_gateway(name, url)
    with Client(found.gateway) as client:
        opened = client.open(
            found.name,
            split=split,
            task=task,
            seed=seed,
            reward_in_meta=reward_in_meta,
            mint_token=token_for_agent,
        )
    if as_json:
        console.document(opened.model_dump(mode="json"))
    else:
        show_opened(found.name, opened)


def show_opened(name: str, opened: OpenedEpisode) -> None:
    """Print the address of an episode, and how to attach a player to it.

    Args:
        name: What a client is to call the server.
        opened: The episode.
    """
    wanted = opened.token or (TOKEN_VARIABLE if token() else None)
    attach = Attachment.to_address(opened.mcp_url, name, wanted).claude_code
    facts = [("episode", opened.episode_id), ("MCP URL", opened.mcp_url), ("seed", str(opened.seed))]
    if opened.token:
        facts.append(("token", opened.token))
    # Print without wrapping, so that each value can be copied.
    for key, value in [*facts, ("attach", shlex.join(attach))]:
        console.line(f"{key:8} {value}")
    console.line()
    # A prompt with images is at the beginning of the first observation.
    if opened.prompt:
        console.heading("Prompt:")
        console.paragraph(opened.prompt)
        console.line()
    console.heading("First observation:")
    ObservationPrinter().show(opened.observation)
