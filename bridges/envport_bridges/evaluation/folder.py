"""The results whose logs are in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from inspect_ai.log import EvalLog, read_eval_log

from envport.errors import InvalidOption
from envport_bridges.evaluation.inspect_ai.task import IDENTITY
from envport_bridges.evaluation.results import Result

__all__ = ["Folder", "read_folders"]

_LOGS = (".eval", ".json")


@dataclass(frozen=True)
class Folder:
    """What was found in folders.

    Attributes:
        results: The results, by environment and player, the oldest first.
        superseded: Logs of evaluations that a later log continues.
        others: Files that are no logs of an evaluation with envport.
    """

    results: tuple[Result, ...]
    superseded: tuple[Path, ...]
    others: tuple[Path, ...]


def read_folders(places: Iterable[Path]) -> Folder:
    """Read all logs in folders and those below them.

    Args:
        places: Folders, and single logs.

    Raises:
        InvalidOption: There is no such folder or file.
    """
    latest: dict[str, tuple[EvalLog, Path]] = {}
    superseded: list[Path] = []
    others: list[Path] = []
    for file in dict.fromkeys(file for place in places for file in _files(place)):
        header = _header(file)
        if header is None:
            others.append(file)
            continue
        known = latest.get(header.eval.task_id)
        newer = known is None or _age(header, file) >= _age(*known)
        if known is not None:
            superseded.append(known[1] if newer else file)
        if newer:
            latest[header.eval.task_id] = (header, file)
    ordered = sorted(latest.values(), key=lambda found: _age(*found))
    results = sorted((Result.read(file) for _, file in ordered), key=lambda one: (one.identity.environment, one.player))
    return Folder(tuple(results), tuple(superseded), tuple(others))


def _age(header: EvalLog, file: Path) -> tuple[str, int]:
    # The log says in which second it began.
    return header.eval.created, file.stat().st_mtime_ns


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise InvalidOption(f"there is no folder {place}; it has to be a folder with logs of evaluations, such as logs")
    return sorted(file for file in place.rglob("*") if file.suffix in _LOGS and file.is_file())


def _header(file: Path) -> EvalLog | None:
    """The log without its samples; `None` if it is not the log of an evaluation with envport."""
    try:
        header = read_eval_log(str(file), header_only=True)
    except (OSError, ValueError, KeyError):
        return None
    return header if IDENTITY in (header.eval.metadata or {}) else None
