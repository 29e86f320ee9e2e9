"""`envport episodes show`."""

from __future__ import annotations

import hashlib
import json
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import anyio
import typer

from envport.cli import console
from envport.cli.episodes.listing import told_time
from envport.cli.groups import grouped
from envport.cli.observation import ObservationPrinter
from envport.cli.options import AsJson
from envport.cli.stored import ArchiveOptions, named_episode
from envport.cli.summary import first_line
from envport.errors import ConfigurationError
from envport.trajectories.recorded import RecordedEpisode
from envport.types import EpisodeInfo, StepRecord

__all__ = ["show"]


@grouped
def show(
    episode: Annotated[str, typer.Argument(metavar="EPISODE", help="The episode's handle.")],
    images: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write its images there; otherwise only their size is told.")
    ] = None,
    as_json: AsJson = False,
    *,
    store: ArchiveOptions,
) -> None:
    """Show a recorded episode: its tools, what its player saw and did, and its rewards."""
    recorded = anyio.run(_read, store, episode)
    if as_json:
        # The rewards are with the calls, and the store does not know when a live episode expires.
        trajectory = recorded.trajectory.model_dump(mode="json", exclude={"episode": {"rewards", "expires_in"}})
        console.document({**trajectory, "prompt": recorded.prompt, "tools": list(recorded.tools)})
        return
    printer = ObservationPrinter(_Kept(images) if images is not None else _size)
    _show_facts(recorded)
    if recorded.prompt:
        console.heading("The player was told:")
        console.paragraph(recorded.prompt)
        console.line()
    console.heading("Tools:")
    console.rows((str(tool["name"]), first_line(str(tool.get("description") or ""))) for tool in recorded.tools)
    console.line()
    console.heading("The player saw first:")
    printer.show(recorded.trajectory.first_observation)
    if recorded.trajectory.dropped_steps:
        console.note(f"The first {recorded.trajectory.dropped_steps} calls are not kept any more.")
    for step in recorded.trajectory.steps:
        console.line()
        _show_call(step)
        printer.show(step.observation, "red" if step.error is not None else "")
    console.line()
    _show_end(recorded.trajectory.episode)


async def _read(store: ArchiveOptions, handle: str) -> RecordedEpisode:
    async with store.opened() as archive:
        return await named_episode(archive, handle)


def _show_facts(recorded: RecordedEpisode) -> None:
    info = recorded.trajectory.episode
    task = "none" if info.task is None else info.task.id
    if info.task_index is not None:
        task += f" (index {info.task_index} of split {info.split})"
    console.heading(f"{info.episode_id}: {info.environment}, version {recorded.trajectory.environment_version}")
    console.rows(
        [
            ("task", task),
            ("seed", "not known" if info.seed is None else str(info.seed)),
            ("opened", f"{told_time(info.created_at)} by {recorded.principal}"),
            ("labels", ", ".join(f"{name}={value}" for name, value in info.labels.items()) or "none"),
            ("tool listing", info.fingerprint or "not known"),
        ]
    )
    console.line()


def _show_call(step: StepRecord) -> None:
    told = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in step.arguments.items())
    facts = [f"{step.seconds * 1000:.1f} ms"]
    if step.reward is not None:
        facts.insert(0, f"reward {step.reward:g}")
    facts += [fact for fact in ("terminated", "truncated") if getattr(step, fact)]
    if step.error is not None:
        facts.append(step.error)
    console.line(f"{step.index}. {step.tool}({told})   [{', '.join(facts)}]", "bold cyan")
    if step.info:
        console.line(f"   info: {json.dumps(step.info, ensure_ascii=False)}", "dim")


def _show_end(info: EpisodeInfo) -> None:
    if info.outcome is None:
        console.heading(f"It is {info.status}.")
    else:
        console.heading(f"It has ended: {info.status} ({info.outcome.reason}). {info.outcome.message}")
        if info.outcome.lost:
            console.line(f"A fault of the {info.outcome.fault}: the episode says nothing about its player.", "yellow")
    if info.score is not None:
        console.line(f"Score of the final state: {info.score:g}")
    console.line(f"Reward: {info.reward:g}" if info.reward is not None else "It has no reward.")


def _size(content: bytes, mime_type: str) -> str:
    return f"{mime_type}, {len(content):,} bytes"


@dataclass(frozen=True)
class _Kept:
    """Writes images to a folder, each once.

    Attributes:
        folder: The folder; it is made if it is not there.
    """

    folder: Path

    def __call__(self, content: bytes, mime_type: str) -> str:
        name = hashlib.sha256(content).hexdigest()[:16] + (mimetypes.guess_extension(mime_type) or ".bin")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(content)
        except OSError as error:
            raise ConfigurationError(f"{self.folder} cannot be written: {error.strerror}") from None
        return f"{_size(content, mime_type)}, {self.folder / name}"
