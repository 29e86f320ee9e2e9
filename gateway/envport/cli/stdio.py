"""`envport stdio`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import anyio
import typer

from envport.cli.loading import load_environment
from envport.cli.options import Reference, Seed, SplitName, TaskIndex
from envport.mcp.stdio import serve_stdio
from envport.telemetry.logs import LogLevel, configure_logging

__all__ = ["stdio"]


def stdio(
    reference: Reference,
    split: SplitName = None,
    task: TaskIndex = None,
    seed: Seed = None,
    drain_seconds: Annotated[
        float, typer.Option(min=0, help="Seconds that a running call has to be answered after SIGTERM.")
    ] = 15.0,
) -> None:
    """Serve one environment on standard input and output, for MCP clients that start a process.

    With --split, --task or --seed the process plays one fixed episode and shows exactly the environment's
    tools; without, the player starts episodes.
    """
    configure_logging(LogLevel.INFO)
    spec = load_environment(reference)
    anyio.run(partial(serve_stdio, spec, split=split, task=task, seed=seed, drain_seconds=drain_seconds))
