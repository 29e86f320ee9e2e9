"""Options of commands that read recorded episodes, and reading them.

Beside `groups`, this is what commands of other packages may import of the command line.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, cast, get_args

import anyio.to_thread
import typer

from envport.cli.groups import OptionGroup
from envport.environment_file import DEFAULT_FILE, EnvironmentFile
from envport.errors import ConfigurationError, UnknownEpisode
from envport.trajectories.archive import Archive, EpisodeFilter, StoredEpisode
from envport.trajectories.recorded import RecordedEpisode, read_recorded
from envport.types import FaultOwner, Reason, Status

__all__ = ["STORE_VARIABLE", "ArchiveOptions", "FilterOptions", "found_episodes", "named_episode"]

STORE_VARIABLE = "ENVPORT_STORE"

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_PAGE = 500


@dataclass(frozen=True)
class ArchiveOptions(OptionGroup):
    """Where the episodes are."""

    store: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER_OR_URL",
            help=f"The store that the gateway writes to: what envport serve --store names.  [{STORE_VARIABLE}, else "
            f"store of {DEFAULT_FILE}'s \\[serve]]",
            show_default=False,
        ),
    ] = None

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Archive]:
        """The store, for reading.

        Raises:
            ConfigurationError: No store is named, or what is named is not a store.
            StoreUnavailable: It cannot be read now.
        """
        place = self._place()
        # Imported only here: SQLAlchemy takes longer to import than most commands take.
        from envport.trajectories.recorder import open_archive

        archive = await anyio.to_thread.run_sync(open_archive, place)
        try:
            yield archive
        finally:
            archive.close()

    def _place(self) -> str:
        file = EnvironmentFile.in_folder()
        place = self.store or os.environ.get(STORE_VARIABLE) or (file.serve.get("store") if file is not None else None)
        if not place:
            raise ConfigurationError(
                f"no store is named: give --store FOLDER_OR_URL or set {STORE_VARIABLE}. envport serve says at its "
                "start where it keeps its episodes"
            )
        return str(place)


@dataclass(frozen=True)
class FilterOptions(OptionGroup):
    """Which episodes."""

    title = "Which episodes"

    environment: Annotated[str | None, typer.Option(metavar="NAME", help="Those of an environment.")] = None
    status: Annotated[str | None, typer.Option(help=f"One of: {', '.join(get_args(Status))}.")] = None
    reason: Annotated[str | None, typer.Option(help=f"Why it ended; one of: {', '.join(get_args(Reason))}.")] = None
    fault: Annotated[
        str | None, typer.Option(help=f"Owner of the fault that ended it; one of: {', '.join(get_args(FaultOwner))}.")
    ] = None
    lost: Annotated[
        bool | None, typer.Option("--lost/--not-lost", help="Lost to a fault that is not the player's, or not lost.")
    ] = None
    live: Annotated[bool | None, typer.Option("--live/--ended", help="Live, or ended.")] = None
    min_reward: Annotated[float | None, typer.Option(help="Lowest reward. Those without a reward are left out.")] = None
    max_reward: Annotated[float | None, typer.Option(help="Highest reward. Those without one are left out.")] = None
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Opened then or later: 2026-11-23, 2026-11-23T14:00, or 2h for 2 hours ago."),
    ] = None
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Opened before that time.")] = None
    principal: Annotated[str | None, typer.Option(metavar="NAME", help="Those that a principal owns.")] = None
    label: Annotated[
        tuple[str, ...], typer.Option(metavar="NAME=VALUE", help="Those with this label. May be repeated.")
    ] = ()

    def filter(self) -> EpisodeFilter:
        """The filter.

        Raises:
            ConfigurationError: A value is not allowed.
        """
        return EpisodeFilter(
            principal=self.principal,
            environment=self.environment,
            status=_one_of("--status", self.status, Status),
            reason=_one_of("--reason", self.reason, Reason),
            fault=_one_of("--fault", self.fault, FaultOwner),
            lost=self.lost,
            live=self.live,
            min_reward=self.min_reward,
            max_reward=self.max_reward,
            since=_time("--since", self.since),
            until=_time("--until", self.until),
            labels=dict(map(_label, self.label)),
        )


async def named_episode(archive: Archive, handle: str) -> RecordedEpisode:
    """An episode that the user has named.

    Raises:
        ConfigurationError: The store has no such episode.
        StoreUnavailable: The store cannot be read now.
    """
    try:
        return await read_recorded(archive, handle)
    except UnknownEpisode:
        raise ConfigurationError(
            f"the store has no episode {handle!r}: envport episodes list shows which it has. A running gateway writes "
            "to it once a second"
        ) from None


async def found_episodes(archive: Archive, wanted: EpisodeFilter, limit: int | None) -> AsyncIterator[StoredEpisode]:
    """The episodes that a filter lets through, the newest first.

    Args:
        archive: The store.
        wanted: The filter.
        limit: The most to yield; `None` for all.
    """
    after: str | None = None
    remaining = limit
    while remaining is None or remaining > 0:
        page = await archive.find(wanted, _PAGE if remaining is None else min(_PAGE, remaining), after)
        for stored in page.episodes:
            yield stored
        if page.next is None:
            return
        after = page.next
        remaining = remaining - len(page.episodes) if remaining is not None else None


def _one_of(option: str, value: str | None, kind: Any) -> Any:
    allowed = cast("tuple[str, ...]", get_args(kind))
    if value is not None and value not in allowed:
        raise ConfigurationError(f"{option} is {value!r}; allowed: {', '.join(allowed)}")
    return value


def _time(option: str, text: str | None) -> float | None:
    """A time as Unix time in seconds. Without a time zone, it is one of this machine's."""
    if text is None:
        return None
    if (ago := _AGO.fullmatch(text.strip())) is not None:
        return time.time() - float(ago[1]) * _UNITS[ago[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ConfigurationError(
            f"{option} is {text!r}; allowed: a date or time such as 2026-11-23 or 2026-11-23T14:00+01:00, or how long "
            "ago, such as 45s, 30m, 2h, 3d or 1w"
        ) from None


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ConfigurationError(f"--label is {text!r}; it has to be NAME=VALUE")
    return name, value
