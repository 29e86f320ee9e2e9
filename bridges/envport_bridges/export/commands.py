"""`envport episodes export`."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import anyio
import anyio.from_thread
import anyio.to_thread
import typer

from envport.cli.groups import OptionGroup, grouped
from envport.cli.options import json_object
from envport.cli.stored import ArchiveOptions, FilterOptions, found_episodes
from envport.errors import ConfigurationError
from envport.trajectories.archive import Archive, EpisodeFilter
from envport.trajectories.recorded import RecordedEpisode, read_recorded
from envport_bridges.export.conversation import ConversationForm, why_incomplete
from envport_bridges.export.files import write_atif, write_jsonl, write_parquet

__all__ = ["export"]

_Write = Callable[[Iterator[RecordedEpisode], Path, ConversationForm], int]
_WRITERS: dict[str, _Write] = {"jsonl": write_jsonl, "parquet": write_parquet, "atif": write_atif}


@dataclass(frozen=True)
class FormOptions(OptionGroup):
    """What is written of an episode."""

    title = "What is written of each"

    keep_refused: Annotated[
        bool,
        typer.Option(
            "--keep-refused",
            help="Keep calls that were refused before they reached the environment, such as those with invalid "
            "arguments.",
        ),
    ] = False
    last_turn: Annotated[
        str,
        typer.Option(metavar="TEXT", help="What the assistant says after the last observation; nothing if not given."),
    ] = ""
    chat_template_kwargs: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="What TRL gives to the chat template, such as '{\"enable_thinking\": false}'.",
        ),
    ] = None

    def form(self) -> ConversationForm:
        """The same as the functions of this package take it.

        Raises:
            InvalidOption: What is given for the template is no JSON object.
        """
        return ConversationForm(
            self.keep_refused, self.last_turn, json_object("--chat-template-kwargs", self.chat_template_kwargs)
        )


@grouped
def export(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="What to write: FILE.jsonl, FILE.parquet, or with --format atif a folder."),
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="jsonl or parquet: chat messages with tools, for TRL's SFTTrainer. atif: trajectories of Harbor. If "
            "not given, as FILE is called.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The most episodes; all if not given.")] = None,
    *,
    store: ArchiveOptions,
    wanted: FilterOptions,
    content: FormOptions,
) -> None:
    """Export recorded episodes to fine-tune a model on: chat messages with the tools that the player had.

    Live episodes, and those that were lost to a fault that is not the player's, are left out unless they are asked for.
    """
    write = _writer(form, file)
    chosen = _Chosen(_ended(wanted.filter()), limit)
    count = anyio.run(_export, store, chosen, write, file, content.form())
    typer.echo(f"Exported {count} episode{'s' if count != 1 else ''} to {file}.")
    for why, times in chosen.left_out.items():
        typer.echo(f"Left out {times}: {why}.", err=True)


@dataclass
class _Chosen:
    """The episodes to export.

    Attributes:
        wanted: Which.
        limit: The most of them.
        left_out: How many were left out, by the reason.
    """

    wanted: EpisodeFilter
    limit: int | None
    left_out: Counter[str] = field(default_factory=Counter[str])

    async def of(self, archive: Archive) -> AsyncIterator[RecordedEpisode]:
        """The episodes to export, as they are read. Counts those that are left out."""
        async for stored in found_episodes(archive, self.wanted, self.limit):
            recorded = await read_recorded(archive, stored.info.episode_id)
            if (why := why_incomplete(recorded)) is None:
                yield recorded
            else:
                self.left_out[why] += 1


async def _export(store: ArchiveOptions, chosen: _Chosen, write: _Write, file: Path, form: ConversationForm) -> int:
    async with store.opened() as archive:
        if not await archive.count(chosen.wanted):
            raise ConfigurationError(f"no episode fits, so {file} is not written")
        return await anyio.to_thread.run_sync(write, _in_thread(chosen.of(archive)), file, form)


def _in_thread(episodes: AsyncIterator[RecordedEpisode]) -> Iterator[RecordedEpisode]:
    """The same in a thread that the event loop has started."""

    async def following() -> RecordedEpisode | None:
        return await anext(episodes, None)

    while (recorded := anyio.from_thread.run(following)) is not None:
        yield recorded


def _ended(wanted: EpisodeFilter) -> EpisodeFilter:
    """The filter, without live and lost episodes unless it asks for them."""
    if wanted.live is None and wanted.status is None:
        wanted = replace(wanted, live=False)
    return replace(wanted, lost=False) if wanted.lost is None and wanted.fault is None else wanted


def _writer(form: str | None, file: Path) -> _Write:
    named = form or file.suffix.removeprefix(".")
    if named not in _WRITERS:
        what = f"--format is {form!r}" if form is not None else f"the name of {file} does not say in which format"
        raise ConfigurationError(f"{what}; allowed: {', '.join(_WRITERS)} (--format, or FILE.jsonl and FILE.parquet)")
    return _WRITERS[named]
