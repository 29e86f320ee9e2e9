"""`envport episodes list`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import anyio
import typer

from envport.cli import console
from envport.cli.groups import grouped
from envport.cli.options import AsJson
from envport.cli.stored import ArchiveOptions, FilterOptions, found_episodes
from envport.trajectories.archive import StoredEpisode

__all__ = ["episode_document", "list_recorded", "task_name", "told_time"]

_HEADINGS = ("EPISODE", "ENVIRONMENT", "TASK", "SEED", "OUTCOME", "REWARD", "STEPS", "OPENED")


@grouped
def list_recorded(
    limit: Annotated[int, typer.Option(min=1, help="The most episodes to list.")] = 50,
    as_json: AsJson = False,
    *,
    store: ArchiveOptions,
    wanted: FilterOptions,
) -> None:
    """List recorded episodes, the newest first."""
    found, total = anyio.run(_find, store, wanted, limit)
    if as_json:
        console.document([episode_document(stored) for stored in found])
        return
    if not found:
        fits = "" if wanted == FilterOptions() else " that fits"
        console.line(f"No episode is recorded{fits}. A running gateway writes to its store once a second.")
        return
    for number, line in enumerate(_table([_HEADINGS, *map(_row, found)])):
        console.line(line, "" if number else "bold")
    if total > len(found):
        console.note(f"{total - len(found)} more: --limit {total} lists all")


async def _find(store: ArchiveOptions, wanted: FilterOptions, limit: int) -> tuple[list[StoredEpisode], int]:
    chosen = wanted.filter()
    async with store.opened() as archive:
        found = [stored async for stored in found_episodes(archive, chosen, limit)]
        return found, len(found) if len(found) < limit else await archive.count(chosen)


def episode_document(stored: StoredEpisode) -> dict[str, Any]:
    """An episode as JSON."""
    # The store keeps the rewards with the calls, and does not know when a live episode expires.
    info = stored.info.model_dump(mode="json", exclude={"rewards", "expires_in"})
    return {
        **info,
        "principal": stored.principal,
        "environment_version": stored.environment_version,
        "updated_at": stored.updated_at,
        "forked_from": stored.forked_from,
        "forked_at": stored.forked_at,
    }


def task_name(stored: StoredEpisode) -> str:
    """Its task, in few words; a dash if it has none."""
    info = stored.info
    if info.task is None:
        return "-"
    return f"{info.split}/{info.task.id}" if info.split is not None else info.task.id


def told_time(seconds: float) -> str:
    """A time as this machine's clock shows it."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def _row(stored: StoredEpisode) -> tuple[str, ...]:
    info = stored.info
    return (
        info.episode_id,
        info.environment,
        task_name(stored),
        "-" if info.seed is None else str(info.seed),
        info.status if info.outcome is None else f"{info.status} ({info.outcome.reason})",
        "-" if info.reward is None else f"{info.reward:g}",
        str(info.steps),
        told_time(info.created_at),
    )


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    shown = [[console.printable(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
