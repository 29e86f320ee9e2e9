"""What of an author's files and packages goes into a container."""

from __future__ import annotations

import importlib.util
import inspect
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution, distributions, entry_points
from pathlib import Path
from typing import Any

from envport.classes import GROUP
from envport.cli.building.distributions import InstallSource, source_of
from envport.cli.building.imports import Imports, installed_packages, package_of
from envport.definition import EnvironmentDefinition
from envport.errors import ConfigurationError
from envport.references import ParsedReference
from envport.registry import schemes

__all__ = ["CLIENT", "Contents", "Package", "contents_of"]

_OURS = "envport"
CLIENT = "envport-client"
"""The distribution of envport's client, which envport needs."""


@dataclass(frozen=True)
class Package:
    """A distribution that the container installs.

    Attributes:
        name: Its name.
        origin: Where it came from.
        extras: Its extras.
    """

    name: str
    origin: InstallSource
    extras: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contents:
    """What goes into the container.

    Attributes:
        files: Files and folders to copy, by their path in the container.
        search: Folders in the container in which Python looks for modules.
        packages: What is installed: envport first.
        sandboxed: Whether it needs what sandboxes need.
        missing: Names that are imported and of which nothing is installed here.
    """

    files: Mapping[str, Path]
    search: tuple[str, ...]
    packages: tuple[Package, ...]
    sandboxed: bool
    missing: tuple[str, ...]


def contents_of(
    definition: EnvironmentDefinition, target: str, values: Iterable[str], base: Path, included: Iterable[Path]
) -> Contents:
    """Find out what an environment needs.

    Args:
        definition: The environment.
        target: Its reference, without another name.
        values: Further texts that may name files, such as its options.
        base: The folder that relative paths begin at.
        included: Files and folders that the author names.

    Raises:
        ConfigurationError: Something lies outside of the folder, or nobody knows where it comes from.
    """
    found = Imports()
    named = [path for text in _texts(target, values) for path in _paths(text, base)]
    roots = {_inside(package_of(path.absolute()), base) for path in (*named, *included)}
    for path in roots:
        for file in [path] if path.suffix == ".py" else sorted(path.rglob("*.py")):
            found.follow(file)
    owners = _followed(definition, target, found)
    search = {Path(".")}
    for file in found.own:
        whole = package_of(file)
        if not any(file.is_relative_to(root) for root in roots):
            roots.add(_inside(whole, base))
        if str(whole.parent) in sys.path and whole.is_relative_to(base):
            search.add(whole.parent.relative_to(base))
    core = _core()
    for name in found.packages:
        owner = distribution(installed_packages()[name][0])
        if _plain(owner.name) not in core:
            owners[owner.name] = owner
    ours = Package(_OURS, source_of(distribution(_OURS), Path(__file__)), tuple(sorted(found.extras)))
    client = source_of(distribution(CLIENT), None)
    if client.requirement is None:
        # No index has it, so that its wheel has to be there too.
        owners[CLIENT] = distribution(CLIENT)
    return Contents(
        {path.relative_to(base).as_posix(): path for path in sorted(roots)},
        tuple(sorted(path.as_posix() for path in search)),
        (ours, *(Package(name, source_of(owner, None)) for name, owner in sorted(owners.items()))),
        definition.cls.runs_player_code or definition.cls.sandbox or found.sandboxed,
        tuple(sorted(found.missing)),
    )


def _followed(definition: EnvironmentDefinition, target: str, found: Imports) -> dict[str, Distribution]:
    """Follow the imports of what belongs to no distribution, or to envport. Returns the other distributions."""
    owners: dict[str, Distribution] = {}
    for module in _modules(definition, target):
        owner = _owner(module)
        if owner is not None and owner.name != _OURS:
            owners[owner.name] = owner
        else:
            found.follow(Path(str(sys.modules[module].__file__)), module)
    return owners


def _texts(target: str, values: Iterable[str]) -> Iterator[str]:
    """The parts of a reference and of options that may be paths."""
    _, colon, rest = target.partition(":")
    if colon:
        head, _, query = target.partition("?")
        for text in (head, rest.partition("?")[0], *(word.partition("=")[2] for word in query.split("&"))):
            try:
                yield from (text, *shlex.split(text))
            except ValueError:
                yield text
    yield from values


def _paths(text: str, base: Path) -> Iterator[Path]:
    """The file or folder that a text names relative to the folder; `./file.py:Class` names a file."""
    for words in (text, text.rpartition(":")[0]):
        if words and not Path(words).is_absolute() and (path := base / words).exists() and path.resolve() != base:
            yield path
            return


def _inside(path: Path, base: Path) -> Path:
    if not path.resolve().is_relative_to(base):
        raise ConfigurationError(f"{path} lies outside of {base}: run the command in a folder that holds both")
    return path.resolve()


def _modules(definition: EnvironmentDefinition, target: str) -> Iterator[str]:
    """The modules that the class and the scheme are in, by the names that they can be imported by."""
    for part in (definition.cls, *inspect.getmro(definition.cls)[1:]):
        name = part.__module__
        if importlib.util.find_spec(name.partition(".")[0]) is not None and name.partition(".")[0] not in (
            *sys.stdlib_module_names,
            _OURS,
        ):
            yield name
    parsed = ParsedReference.parse(target)
    if parsed.may_have_scheme and (point := schemes().get(parsed.where)) is not None:
        yield point.module


def _owner(module: str) -> Distribution | None:
    """The distribution that a module belongs to; `None` if it belongs to none."""
    top = module.partition(".")[0]
    if top in (f"{_OURS}_envs", f"{_OURS}_bridges"):
        return distribution(_OURS)
    if names := installed_packages().get(top):
        return distribution(names[0])
    for group in (GROUP, "envport.schemes"):
        for point in entry_points(group=group):
            if point.module.partition(".")[0] == top and point.dist is not None:
                return point.dist
    # An editable installation lists no files of its own.
    file = Path(str(sys.modules[module].__file__)).resolve()
    for one in distributions():
        folder = source_of(one, None).folder
        if folder is not None and file.is_relative_to(folder.resolve()):
            return one
    return None


def _core() -> set[str]:
    """What envport installs anyway."""
    needed: list[Any] = distribution(_OURS).requires or []
    return {_plain(_name(text)) for text in needed if "extra ==" not in text} | {_OURS}


def _name(requirement: str) -> str:
    for mark in " ;[<>=!~(@":
        requirement = requirement.partition(mark)[0]
    return requirement


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
