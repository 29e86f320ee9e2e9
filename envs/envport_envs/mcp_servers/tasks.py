"""The task file: prompts, start files, tools and scores, as TOML, JSON lines, or a Python module."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from envport.errors import ConfigurationError
from envport.modules import import_file
from envport.types import Task

__all__ = ["Score", "Splits", "TaskEntry", "read_tasks"]

_DEFAULT_SPLIT = "train"
_KINDS = ".toml, .jsonl or .py"


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Score(_Entry):
    """How the final state of a task is scored: by a check, a command, or a function.

    Attributes:
        files: The contents that files have to have, by path. This and the next two are one check: 1.0 if all of it
            holds, else 0.0.
        contains: Texts that files have to contain, by path.
        missing: Paths that must not exist.
        command: A command that runs in a copy of the working folder: 1.0 if it exits with 0, else 0.0. `{python}` is
            the Python of this process, and `{tasks}` the folder of the task file.
        function: A function, `package.module:function` or `./file.py:function`; see `envport_envs.mcp_servers.scoring`.
    """

    files: dict[str, str] = Field(default_factory=dict[str, str])
    contains: dict[str, str] = Field(default_factory=dict[str, str])
    missing: tuple[str, ...] = ()
    command: str | None = None
    function: str | None = None

    @property
    def checks(self) -> bool:
        """Whether it is a check."""
        return bool(self.files or self.contains or self.missing)


class TaskEntry(_Entry):
    """A task of the file.

    Attributes:
        id: Its name; its split and place in it if not given.
        split: Its split.
        prompt: What the player is told to do; the server's own instructions if empty.
        files: Texts of files that the working folder starts with, by path.
        folder: A folder whose files the working folder starts with. Relative to the task file.
        tools: The tools that are shown, in this order; all if not given.
        score: How its final state is scored; if not given, it has no reward.
        metadata: Anything else that a reward function needs. The player never sees it.
    """

    id: str = ""
    split: Annotated[str, Field(min_length=1)] = _DEFAULT_SPLIT
    prompt: str = ""
    files: dict[str, str] = Field(default_factory=dict[str, str])
    folder: str | None = None
    tools: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    score: Score | None = None
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])

    def task(self) -> Task:
        """The task as trainers and players get it."""
        return Task(id=self.id, prompt=self.prompt, metadata=self.metadata)


Splits = Mapping[str, tuple[TaskEntry, ...]]
"""The tasks by split."""

_ENTRY = TypeAdapter(TaskEntry)


def read_tasks(path: Path) -> Splits:
    """Read a task file. Paths in it are relative to its folder.

    Raises:
        ConfigurationError: It cannot be read, or a task is malformed. The message says which, and what is allowed.
    """
    if not path.is_file():
        raise ConfigurationError(f"there is no task file {path}")
    readers = {".toml": _from_toml, ".jsonl": _from_lines, ".py": _from_module}
    reader = readers.get(path.suffix)
    if reader is None:
        raise ConfigurationError(f"{path} is no task file: its name has to end in {_KINDS}")
    splits: dict[str, list[TaskEntry]] = {}
    seen: set[str] = set()
    for number, table in enumerate(reader(path)):
        entry = _entry(f"{path}, task {number}", table, path.parent)
        tasks = splits.setdefault(entry.split, [])
        entry = entry if entry.id else entry.model_copy(update={"id": f"{entry.split}/{len(tasks)}"})
        if entry.id in seen:
            raise ConfigurationError(f"{path}, task {number}: there is another task with the id {entry.id!r}")
        seen.add(entry.id)
        tasks.append(entry)
    if not splits:
        raise ConfigurationError(f"{path} has no tasks")
    return {split: tuple(tasks) for split, tasks in splits.items()}


def _from_toml(path: Path) -> Iterable[Any]:
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from None
    for key in document:
        if key not in ("defaults", "tasks"):
            raise ConfigurationError(f"{path} has an unknown key {key!r}; allowed: [defaults] and [[tasks]]")
    defaults, tasks = document.get("defaults", {}), document.get("tasks", [])
    if not isinstance(defaults, dict) or not isinstance(tasks, list):
        raise ConfigurationError(f"{path}: write [defaults] once, and [[tasks]] for each task")
    for table in cast("list[Any]", tasks):
        yield {**cast("dict[str, Any]", defaults), **table} if isinstance(table, dict) else table


def _from_lines(path: Path) -> Iterable[Any]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    raise ConfigurationError(f"{path}, line {number} is not JSON: {error}") from None


def _from_module(path: Path) -> Iterable[Any]:
    found = getattr(import_file(str(path)), "tasks", None)
    tasks = found() if callable(found) else found
    if not isinstance(tasks, Iterable) or isinstance(tasks, str | Mapping):
        raise ConfigurationError(f"{path} needs tasks: a list of mappings, or a function that returns one")
    yield from cast("Iterable[Any]", tasks)


def _entry(where: str, table: Any, folder: Path) -> TaskEntry:
    try:
        # As JSON, so that a list may stand where a tuple is kept.
        entry = _ENTRY.validate_json(json.dumps(table), strict=True)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{where}: {_explained(error)}") from None
    for path in entry.files:
        _require_inside(where, path)
    start = folder / entry.folder if entry.folder is not None else None
    if start is not None and not start.is_dir():
        raise ConfigurationError(f"{where}: there is no folder {start}")
    score = _absolute(where, entry.score, folder) if entry.score is not None else None
    return entry.model_copy(update={"folder": start and str(start.resolve()), "score": score})


def _absolute(where: str, score: Score, folder: Path) -> Score:
    given = [name for name in ("command", "function") if getattr(score, name) is not None]
    if len(given) + score.checks != 1:
        raise ConfigurationError(
            f"{where}: score needs exactly one of: a check (files, contains, missing), command, function"
        )
    for path in (*score.files, *score.contains, *score.missing):
        _require_inside(where, path)
    file, colon, name = (score.function or "").rpartition(":")
    if colon and file.endswith(".py"):
        return score.model_copy(update={"function": f"{(folder / file).resolve()}:{name}"})
    return score


def _require_inside(where: str, path: str) -> None:
    plain = os.path.normpath(path)
    if not path or os.path.isabs(path) or plain.split(os.sep)[0] in ("..", ".") or "\0" in path:
        raise ConfigurationError(f"{where}: {path!r} has to be the path of a file in the working folder")


def _explained(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"it is not plain data: {error}"
    found = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(map(str, found["loc"]))
    if found["type"] == "extra_forbidden":
        model = Score if key.startswith("score.") else TaskEntry
        return f"unknown key {key!r}; allowed: {', '.join(model.model_fields)}"
    return f"{key or 'the task'}: {found['msg'][:1].lower()}{found['msg'][1:]}"
