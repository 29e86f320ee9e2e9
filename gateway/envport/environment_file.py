"""`envport.toml`: several environments with names, options, limits and secrets, and the settings of `envport serve`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from envport.errors import ConfigurationError, EnvironmentNotFound
from envport.references import ParsedReference, from_anywhere

__all__ = ["DEFAULT_FILE", "EnvironmentFile", "EnvironmentTable"]

DEFAULT_FILE = "envport.toml"
"""The file that commands read if it is in the current folder."""

_TABLES = ("serve", "environments", "bench")
_Count = Annotated[int, Field(ge=1)]
_Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Table(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=lambda name: name.replace("_", "-")
    )


class _SecretSource(_Table):
    variable: Annotated[str | None, Field(min_length=1)] = None
    file: Annotated[str | None, Field(min_length=1)] = None

    def read(self, folder: Path, where: str) -> str:
        if (self.variable is None) == (self.file is None):
            raise ConfigurationError(f"{where}: it needs either variable or file")
        if self.variable is not None:
            if not (value := os.environ.get(self.variable)):
                raise ConfigurationError(f"{where}: the variable {self.variable} is not set")
            return value
        file = folder / cast("str", self.file)
        try:
            value = file.read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigurationError(f"{where}: the file {file} cannot be read: {why}") from None
        if not value:
            raise ConfigurationError(f"{where}: the file {file} is empty")
        return value


class _Limits(_Table):
    max_episodes: _Count | None = None
    max_steps: _Count | None = None
    max_seconds: _Amount | None = None
    call_seconds: _Amount | None = None
    reset_seconds: _Amount | None = None
    score_seconds: _Amount | None = None
    close_seconds: _Amount | None = None
    memory_mb: _Amount | None = None


class _Entry(_Table):
    reference: Annotated[str, Field(min_length=1)]
    options: dict[str, Any] | None = None
    score: Annotated[str | None, Field(min_length=1)] = None
    limits: _Limits = _Limits()
    secrets: dict[str, _SecretSource] = Field(default_factory=dict)


@dataclass(frozen=True)
class EnvironmentTable:
    """An environment of a file.

    Attributes:
        reference: What to load, after its name. A path in it is absolute.
        options: Its options; `None` if they are in the reference, or there are none.
        score: Function that scores final states, if one does.
        limits: The limits that replace those of the environment's class, by attribute.
        secrets: Its secrets by name.
    """

    reference: str
    options: Mapping[str, Any] | None
    score: str | None
    limits: Mapping[str, float]
    secrets: Mapping[str, str]


@dataclass(frozen=True)
class EnvironmentFile:
    """A file as it was read. Secrets are read when their environment is asked for.

    Attributes:
        path: Where it is.
        serve: Settings of `envport serve`, by the names of its options. They are not checked here.
        tables: The environments by name, not checked.
        bench: What `envport bench` is to measure, not checked here.
    """

    path: Path
    serve: Mapping[str, Any]
    tables: Mapping[str, Any]
    bench: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file.

        Raises:
            ConfigurationError: It cannot be read, is not TOML, or holds other tables than `serve`, `environments`
                and `bench`.
        """
        try:
            document = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path} is not TOML: {error}") from None
        for key, value in document.items():
            if key not in _TABLES:
                raise ConfigurationError(f"{path} has an unknown key {key!r}; allowed: {', '.join(_TABLES)}")
            if not isinstance(value, dict):
                raise ConfigurationError(f"{path}: {key} has to be a table: [{key}]")
        return cls(path, document.get("serve", {}), document.get("environments", {}), document.get("bench", {}))

    @classmethod
    def in_folder(cls) -> Self | None:
        """The file in the current folder, if there is one."""
        path = Path(DEFAULT_FILE)
        return cls.read(path) if path.is_file() else None

    def reference(self, name: str, alias: str | None = None) -> str:
        """What names an environment of this file anywhere: `alias=/path/envport.toml:name`."""
        return f"{alias or name}={self.path.resolve()}:{name}"

    def environment(self, name: str) -> EnvironmentTable:
        """An environment.

        Raises:
            EnvironmentNotFound: The file has none of that name.
            ConfigurationError: Its table is malformed, or a secret is missing. The message contains no secret.
        """
        if name not in self.tables:
            raise EnvironmentNotFound(
                f"{self.path} has no environment {name!r}; it has: {', '.join(self.tables) or 'none'}"
            )
        where, table = f"{self.path}, [environments.{name}]", self.tables[name]
        if not isinstance(table, dict):
            raise ConfigurationError(f"{where} has to be a table")
        try:
            entry = _Entry.model_validate(table)
        except ValidationError as error:
            raise ConfigurationError(f"{self.path}, {_explained(name, error)}") from None
        parsed = ParsedReference.parse(entry.reference)
        if parsed.alias is not None:
            raise ConfigurationError(
                f"{where}: the reference {entry.reference!r} gives a name of its own; the environment is named "
                f"{name!r} here, so write {parsed.target!r}"
            )
        if parsed.where.endswith(".toml"):
            raise ConfigurationError(f"{where}: a reference in a file cannot name an environment of a file")
        folder = self.path.resolve().parent
        secrets = {
            key: source.read(folder, f"{self.path}, secret {key!r} of {name!r}")
            for key, source in entry.secrets.items()
        }
        limits = entry.limits.model_dump(exclude_none=True)
        reference = from_anywhere(f"{name}={entry.reference}", folder)
        score = from_anywhere(entry.score, folder) if entry.score is not None else None
        return EnvironmentTable(reference, entry.options, score, limits, secrets)


def _explained(name: str, error: ValidationError) -> str:
    """The first mistake in a table. What stands there is not repeated, because it could be a secret."""
    found = error.errors(include_url=False, include_input=False, include_context=False)[0]
    path = [str(part) for part in found["loc"]]
    if path[0] == "secrets" and len(path) == 2:
        return (
            f"[environments.{name}.secrets] has {path[1]!r} in the text, which is refused: write "
            f'{path[1]} = {{ variable = "NAME" }} or {path[1]} = {{ file = "PATH" }}'
        )
    table, key = ".".join(["environments", name, *path[:-1]]), path[-1]
    if found["type"] == "extra_forbidden":
        return f"[{table}] has an unknown key {key!r}; allowed: {', '.join(_keys(path[:-1]))}"
    if found["type"] == "missing":
        return f"[{table}] needs the key {key!r}"
    return f"[{table}]: {key}: {found['msg'][:1].lower()}{found['msg'][1:]}"


def _keys(path: list[str]) -> list[str]:
    model: type[_Table] = {"limits": _Limits, "secrets": _SecretSource}.get(path[0], _Entry) if path else _Entry
    return [str(field.alias) for field in model.model_fields.values()]
