"""Finds the class of an environment: by entry point, by `package.module:Class`, or by `./path/file.py:Class`."""

from __future__ import annotations

import re
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from envport.environment import Environment
from envport.errors import EnvironmentNotFound, InvalidEnvironment
from envport.modules import import_module, module_at

__all__ = ["GROUP", "find_class", "installed"]

GROUP = "envport.environments"
"""The entry point group in which packages register their environments."""


def installed() -> dict[str, EntryPoint]:
    """The entry points of the environments that installed packages register, by name."""
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def find_class(target: str) -> tuple[type[Environment], str]:
    """The class that a reference without scheme and options names, and a name for the environment.

    Raises:
        EnvironmentNotFound: There is nothing of that name.
        InvalidEnvironment: What is there is not an environment.
    """
    if ":" not in target:
        points = installed()
        if target not in points and target.endswith(".py"):
            raise EnvironmentNotFound(f"{target} is a file: name the class in it too, as in {target}:MyEnvironment")
        if target not in points:
            near = get_close_matches(target, points, 1)
            raise EnvironmentNotFound(
                f"there is no environment {target!r}{f', did you mean {near[0]!r}?' if near else ''}; "
                f"installed: {', '.join(points) or 'none'}; "
                "or give package.module:Class, ./path/file.py:Class or scheme:rest"
            )
        point = points[target]
        return _class(import_module(point.module), point.attr, point.value), target
    where, _, attribute = target.rpartition(":")
    module = module_at(where)
    cls = _class(module, attribute, target)
    return cls, _snake(cls.__name__)


def _class(module: ModuleType, attribute: str, target: str) -> type[Environment]:
    found = getattr(module, attribute, None)
    if found is None:
        candidates = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, Environment) and value.__module__ == module.__name__
        ]
        raise EnvironmentNotFound(
            f"{target}: there is no {attribute!r}; environments there: {', '.join(candidates) or 'none'}"
        )
    if not (isinstance(found, type) and issubclass(found, Environment)):
        raise InvalidEnvironment(f"{target} is not a subclass of envport.Environment")
    return found


def _snake(name: str) -> str:
    stem = name.removesuffix("Environment").removesuffix("Env") or name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem).lower()
