"""Finds the class of an environment: by entry point, by `package.module:Class`, or by `./path/file.py:Class`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from envport.environment import Environment
from envport.errors import EnvironmentNotFound, InvalidEnvironment

__all__ = ["GROUP", "find_class", "import_module", "installed"]

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
        if target not in points:
            raise EnvironmentNotFound(
                f"there is no environment {target!r}; installed: {', '.join(points) or 'none'}; "
                "or give package.module:Class, ./path/file.py:Class or scheme:rest"
            )
        point = points[target]
        return _class(import_module(point.module), point.attr, point.value), target
    where, _, attribute = target.rpartition(":")
    module = _import_file(where) if where.endswith(".py") else import_module(where)
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


def import_module(module: str) -> ModuleType:
    """Import a module.

    Raises:
        EnvironmentNotFound: There is no such module.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise EnvironmentNotFound(f"there is no module {module!r}") from None
        raise


def _import_file(where: str) -> ModuleType:
    path = Path(where).resolve()
    if not path.is_file():
        raise EnvironmentNotFound(f"there is no file {where}")
    # A unique module name, so that it shadows neither another file nor an installed package.
    name = f"envport_file_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, SyntaxError):
            raise InvalidEnvironment(f"{where}: {error}") from None
        raise
    return module


def _snake(name: str) -> str:
    stem = name.removesuffix("Environment").removesuffix("Env") or name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem).lower()
