"""`envport episodes diff`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import anyio
import typer

from envport.cli import console
from envport.cli.groups import grouped
from envport.cli.options import AsJson
from envport.cli.stored import ArchiveOptions, named_episode
from envport.trajectories.difference import Difference, first_difference
from envport.trajectories.recorded import RecordedEpisode

__all__ = ["diff", "difference_document", "place_of", "tell_difference"]

_SHOWN = 300


@grouped
def diff(
    first: Annotated[str, typer.Argument(metavar="EPISODE", help="Handle of the first episode.")],
    second: Annotated[str, typer.Argument(metavar="OTHER", help="Handle of the second one.")],
    as_json: AsJson = False,
    *,
    store: ArchiveOptions,
) -> None:
    """Compare two recorded episodes: the first call and JSON path at which they differ.

    Times do not count. Ends with 0 if they are equal, and with 1 if they differ.
    """
    one, other = anyio.run(_read_both, store, first, second)
    found = first_difference(one.trajectory, other.trajectory)
    if as_json:
        console.document({"equal": found is None, "difference": difference_document(found)})
    elif found is None:
        console.line(f"Equal: the first observation and all {len(one.trajectory.steps)} calls.", "green")
    else:
        tell_difference(found, first, second)
    raise typer.Exit(0 if found is None else 1)


def tell_difference(found: Difference, first: str, second: str) -> None:
    """Print a difference.

    Args:
        found: The difference.
        first: Name of the first episode.
        second: Name of the second one.
    """
    console.line(f"They differ first at {place_of(found)}:", "bold")
    shown = ((first, "left", found.left), (second, "right", found.right))
    console.rows((name, _short(value) if found.only in (None, side) else "nothing") for name, side, value in shown)


def place_of(found: Difference) -> str:
    """Where a difference is, for people to read."""
    return f"{f'call {found.step}' if found.step else 'the first observation'}, at {found.path}"


def difference_document(found: Difference | None) -> dict[str, Any] | None:
    """A difference as JSON; a value that is not there is left out."""
    if found is None:
        return None
    values = {"left": ("first", found.left), "right": ("second", found.right)}
    there = dict(named for side, named in values.items() if found.only in (None, side))
    return {"step": found.step, "path": found.path, **there}


async def _read_both(store: ArchiveOptions, first: str, second: str) -> tuple[RecordedEpisode, RecordedEpisode]:
    async with store.opened() as archive:
        return await named_episode(archive, first), await named_episode(archive, second)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"
