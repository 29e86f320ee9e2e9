"""`envport nemo-gym-rows`."""

from __future__ import annotations

import sys
from typing import Annotated

import anyio
import typer
from pydantic_core import to_json

from envport_bridges.nemo_gym.rows import RowsWanted, rows_of
from envport_bridges.rollouts import AsyncRollouts

__all__ = ["nemo_gym_rows"]


def nemo_gym_rows(
    environment: Annotated[
        str,
        typer.Argument(
            metavar="ENVIRONMENT", help="A reference, as `envport serve` takes it, or http://HOST/environments/NAME."
        ),
    ],
    split: Annotated[str | None, typer.Option(metavar="NAME", help="The split; the first one if not given.")] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="How many rows, from the first task on; all tasks if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first row; the next one has the next seed.")] = 0,
    tools: Annotated[
        bool, typer.Option("--tools/--without-tools", help="Whether rows carry the tools. Agents with MCP need none.")
    ] = True,
    mask_lost: Annotated[
        bool,
        typer.Option(
            "--mask-lost",
            help="Have lost episodes verified as masked, for NeMo Gym and NeMo RL alone. By default, it is an error.",
        ),
    ] = False,
) -> None:
    """Print an environment's tasks as a dataset of NeMo Gym (JSONL): prompts, tools, and what opens each episode."""
    wanted = RowsWanted(split, rows, seed, tools, "mask" if mask_lost else "error")

    async def run() -> None:
        async for row in rows_of(await AsyncRollouts.connect(environment), wanted):
            sys.stdout.buffer.write(to_json(row) + b"\n")
        sys.stdout.buffer.flush()

    anyio.run(run)
