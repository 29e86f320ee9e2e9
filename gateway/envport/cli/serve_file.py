"""What `envport serve` takes out of an `envport.toml`: its settings as defaults of its options, and environments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer
from pydantic import Field, TypeAdapter, ValidationError

from envport.cli.groups import OptionField, OptionGroup, option_fields
from envport.environment_file import DEFAULT_FILE, EnvironmentFile
from envport.errors import ConfigurationError
from envport.tools.allowed import describe_allowed

__all__ = ["file_option"]


def file_option(*groups: type[OptionGroup]) -> Any:
    """The option that names the file. What the file says replaces the defaults of the options of these groups."""

    def fill(context: typer.Context, path: Path | None) -> Path | None:
        if path is None and not Path(DEFAULT_FILE).is_file():
            return None
        file = EnvironmentFile.read(path or Path(DEFAULT_FILE))
        context.default_map = {**(context.default_map or {}), **_defaults(file, groups)}
        return file.path

    return typer.Option(
        "--config",
        metavar="FILE",
        help=f"TOML file with environments, and with settings that options override; {DEFAULT_FILE} in the current "
        "folder if it is there. /dev/null for none.",
        callback=fill,
        is_eager=True,
        show_default=False,
    )


def _defaults(file: EnvironmentFile, groups: Iterable[type[OptionGroup]]) -> dict[str, Any]:
    known = {field.name.replace("_", "-"): field for group in groups for field in option_fields(group)}
    defaults: dict[str, Any] = {}
    for key, value in file.serve.items():
        if key not in known:
            raise ConfigurationError(f"{file.path}, [serve] has an unknown key {key!r}; allowed: {', '.join(known)}")
        defaults[known[key].name] = _checked(file, key, value, known[key])
    return defaults


def _checked(file: EnvironmentFile, key: str, value: Any, field: OptionField) -> Any:
    """The value as it could be typed on the command line, after a check that its type is the option's."""
    kind: Any = list[field.kind.__args__[0]] if get_origin(field.kind) is tuple else field.kind
    bounded: Any = Annotated[kind, Field(ge=field.option.min, le=field.option.max)]
    adapter = TypeAdapter[Any](bounded)
    try:
        read = adapter.validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError:
        schema: Mapping[str, Any] = adapter.json_schema()
        raise ConfigurationError(
            f"{file.path}, [serve]: {key} is {value!r}; it has to be {describe_allowed(schema, schema)}"
        ) from None
    return str(file.path.resolve().parent / read) if isinstance(read, Path) else value
