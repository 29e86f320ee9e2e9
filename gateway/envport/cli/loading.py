"""Loads environments for a command. An error in an author's code becomes a message of one line."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from envport.classes import installed
from envport.cli.attachment import with_own_pip
from envport.cli.summary import first_line
from envport.definition import EnvironmentDefinition
from envport.environment_file import EnvironmentFile
from envport.errors import EnvportError, InvalidEnvironment
from envport.references import ParsedReference
from envport.registry import load, scheme_of, schemes

__all__ = ["Unloadable", "load_environment", "load_installed", "load_schemes", "load_served", "with_file"]


@dataclass(frozen=True)
class Unloadable:
    """An installed environment or scheme that cannot be loaded.

    Attributes:
        name: Its name.
        why: What is wrong or missing.
    """

    name: str
    why: str


def load_environment(
    reference: str, file: EnvironmentFile | None = None, score: str | None = None
) -> EnvironmentDefinition:
    """Find an environment; see `envport.registry.load`.

    Args:
        reference: A reference. A bare name is looked for in the file first, then among the installed environments.
        file: The file; `envport.toml` in the current folder, if it is there, if not given.
        score: Function that scores final states; see `envport.registry.load`.

    Raises:
        ConfigurationError: It cannot be served, or its own code fails. `load` does not catch the latter.
    """
    return _load(with_file(reference, file), score)


def with_file(reference: str, file: EnvironmentFile | None = None) -> str:
    """The reference, with the path of the file if it is a name in it; see `load_environment`."""
    file = file or EnvironmentFile.in_folder()
    found = ParsedReference.parse(reference)
    if file is not None and found.target in file.tables:
        return file.reference(found.target, found.alias)
    return reference


def _load(reference: str, score: str | None) -> EnvironmentDefinition:
    try:
        return load(reference, score=score)
    except EnvportError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        # A `Task` that cannot be made is refused inside pydantic; the line that made it is the one to mend.
        frame = next((frame for frame in reversed(frames) if "pydantic" not in Path(frame.filename).parts), frames[-1])
        raise InvalidEnvironment(
            f"{reference} cannot be loaded: {_said(error)} ({frame.filename}, line {frame.lineno})"
        ) from error


def _said(error: BaseException) -> str:
    if not isinstance(error, ValidationError):
        return f"{type(error).__name__}: {error}"
    found = error.errors(include_url=False, include_context=False)[0]
    where = ".".join([error.title, *map(str, found["loc"])])
    return f"{where}: {found['msg'].removeprefix('Value error, ')}"


def load_installed(score: str | None = None) -> tuple[list[EnvironmentDefinition], list[Unloadable]]:
    """The installed environments: those that load, and those that do not."""
    specs: list[EnvironmentDefinition] = []
    unloadable: list[Unloadable] = []
    for name in installed():
        try:
            specs.append(_load(name, score))
        except EnvportError as error:
            unloadable.append(Unloadable(name, with_own_pip(str(error))))
    return specs, unloadable


def load_schemes() -> tuple[list[tuple[str, str]], list[Unloadable]]:
    """The installed schemes with what they make, and those that need a package."""
    found: list[tuple[str, str]] = []
    unloadable: list[Unloadable] = []
    for name, point in schemes().items():
        try:
            found.append((f"{name}:", first_line(inspect.getdoc(scheme_of(point)) or "")))
        except EnvportError as error:
            unloadable.append(Unloadable(f"{name}:", with_own_pip(str(error))))
    return found, unloadable


def load_served(
    references: Sequence[str], file: EnvironmentFile | None, score: str | None
) -> tuple[list[tuple[str, EnvironmentDefinition]], list[Unloadable]]:
    """What a gateway serves: the references, or else all environments of the file, or else all that are installed.

    Returns:
        The environments, each with the reference that was loaded, and those that cannot be loaded.

    Raises:
        ConfigurationError: One of the references, or of the file's environments, cannot be served.
    """
    if not references and file is not None:
        references = [file.reference(name) for name in file.tables]
    if references:
        whole = [with_file(it, file) for it in references]
        return [(it, _load(it, score)) for it in whole], []
    specs, unloadable = load_installed(score)
    return [(spec.name, spec) for spec in specs], unloadable
