"""Loads environments for a command. An error in an author's code becomes a message of one line."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from envport.classes import installed
from envport.errors import EnvportError, InvalidEnvironment
from envport.registry import EnvironmentDefinition, load

__all__ = ["Unloadable", "load_environment", "load_installed"]


@dataclass(frozen=True)
class Unloadable:
    """An installed environment that cannot be loaded.

    Attributes:
        name: Its name.
        why: What is wrong or missing.
    """

    name: str
    why: str


def load_environment(reference: str) -> EnvironmentDefinition:
    """Find an environment; see `envport.registry.load`.

    Raises:
        ConfigurationError: It cannot be served, or its own code fails. `load` does not catch the latter.
    """
    try:
        return load(reference)
    except EnvportError:
        raise
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise InvalidEnvironment(
            f"{reference} cannot be loaded: {type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})"
        ) from error


def load_installed() -> tuple[list[EnvironmentDefinition], list[Unloadable]]:
    """The installed environments: those that load, and those that do not."""
    specs: list[EnvironmentDefinition] = []
    unloadable: list[Unloadable] = []
    for name in installed():
        try:
            specs.append(load_environment(name))
        except EnvportError as error:
            unloadable.append(Unloadable(name, str(error)))
    return specs, unloadable
