"""Imports modules by name, or by the path of their file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from envport.errors import EnvironmentNotFound, InvalidEnvironment

__all__ = ["import_file", "import_module", "module_at"]


def module_at(where: str) -> ModuleType:
    """Import `package.module` or `./path/file.py`.

    Raises:
        EnvironmentNotFound: There is no such module or file.
        InvalidEnvironment: The file is not Python.
    """
    return import_file(where) if where.endswith(".py") else import_module(where)


def import_module(module: str) -> ModuleType:
    """Import a module by its name.

    Raises:
        EnvironmentNotFound: There is no such module. A module that it imports itself raises its own error.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise EnvironmentNotFound(f"there is no module {module!r}") from None
        raise


def import_file(where: str) -> ModuleType:
    """Import a file. A file that was imported before is not imported again.

    Raises:
        EnvironmentNotFound: There is no such file.
        InvalidEnvironment: The file is not Python.
    """
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
