"""`envport cluster`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from envport.cli import console
from envport.serve_settings import RaySettings

__all__ = ["cluster"]


class Action(Enum):
    """What to do with the cluster."""

    STATUS = "status"
    STOP = "stop"


def cluster(
    action: Annotated[
        Action,
        typer.Argument(help="status shows the hosts and how much they run; stop ends them and their episodes."),
    ],
    ray_address: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The cluster: HOST:PORT, or auto for one on this machine.")
    ] = "auto",
    ray_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="The gateway's namespace in the cluster.")
    ] = RaySettings.namespace,
) -> None:
    """Look at what a gateway runs on a Ray cluster, or end it: its hosts outlive every replica."""
    # Import late: Ray is an extra, and its import takes a second.
    from envport.cluster.ray_hosts import cluster_loads, stop_cluster

    if action is Action.STOP:
        ended = stop_cluster(ray_address, ray_namespace)
        console.line(f"Ended {ended} host{'s' if ended != 1 else ''}.")
        return
    loads = cluster_loads(ray_address, ray_namespace)
    if not loads:
        console.line(f"No gateway runs in the namespace {ray_namespace!r}.")
    console.rows(
        (host, f"{load.live} of {load.capacity} episodes" if load is not None else "does not answer")
        for host, load in loads.items()
    )
