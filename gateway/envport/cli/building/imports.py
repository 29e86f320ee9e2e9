"""What the source of an environment imports: files of its own, installed packages, and extras of envport."""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions
from importlib.util import resolve_name
from pathlib import Path

__all__ = ["Imports", "installed_packages", "package_of"]

_OURS = ("envport_envs", "envport_bridges")
_CORE = "envport"
# What says that an environment's programs run in a sandbox.
_SANDBOXED = "envport.program_sandbox"


@dataclass
class Imports:
    """What was found by following imports from one file to the next, without running them.

    Attributes:
        own: Python files that belong to no installed package.
        packages: The import names of installed packages.
        extras: The extras of envport that are needed.
        missing: Import names of which nothing is installed here.
        sandboxed: Whether programs are run in a sandbox.
    """

    own: set[Path] = field(default_factory=set[Path])
    packages: set[str] = field(default_factory=set[str])
    extras: set[str] = field(default_factory=set[str])
    missing: set[str] = field(default_factory=set[str])
    sandboxed: bool = False
    _seen: set[Path] = field(default_factory=set[Path])

    def follow(self, file: Path, name: str = "") -> None:
        """Look at a file, and at what it imports.

        Args:
            file: A Python file.
            name: Its module's name, if it has one.
        """
        waiting = [(file.resolve(), name)]
        while waiting:
            path, module = waiting.pop()
            if path in self._seen or path.suffix != ".py":
                continue
            self._seen.add(path)
            tree = ast.parse(path.read_bytes(), str(path))
            if module.partition(".")[0] in _OURS:
                self.extras |= set(_extras(tree))
            else:
                self.own.add(path)
            for imported in _imported(tree, module, path):
                waiting += self._next(imported, path)

    def _next(self, imported: str, importer: Path) -> Iterator[tuple[Path, str]]:
        top = imported.partition(".")[0]
        if top == _CORE:
            self.sandboxed = self.sandboxed or imported.startswith(_SANDBOXED)
        elif top in _OURS:
            yield from _source(imported)
        elif importer not in self.own or top in sys.stdlib_module_names:
            # What envport's own modules need, its extras install.
            return
        elif top in installed_packages():
            self.packages.add(top)
        else:
            found = [*_source(imported)] or [*_beside(importer.parent, imported)]
            if not found and not [*_source(top)]:
                self.missing.add(top)
            yield from found


@functools.cache
def installed_packages() -> Mapping[str, Sequence[str]]:
    """The distributions of each import name. Cached, because it reads a file of each one."""
    return packages_distributions()


def package_of(file: Path) -> Path:
    """The outermost package that a file is in; the file itself if it is in none."""
    found = file
    while (found.parent / "__init__.py").is_file():
        found = found.parent
    return found


def _source(module: str) -> Iterator[tuple[Path, str]]:
    """The file of a module, if there is one; the last part of the name may be something in the module."""
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return
    if found is not None and found.origin and Path(found.origin).is_file():
        yield Path(found.origin).resolve(), module


def _beside(folder: Path, module: str) -> Iterator[tuple[Path, str]]:
    """The file of a module in the same folder, where a program finds it that runs there."""
    stem = folder.joinpath(*module.split("."))
    for path in (stem.with_suffix(".py"), stem / "__init__.py"):
        if path.is_file():
            yield path.resolve(), module


def _imported(tree: ast.AST, module: str, path: Path) -> Iterator[str]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (package or not node.level):
            base = resolve_name("." * node.level + (node.module or ""), package)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _extras(tree: ast.AST) -> Iterator[str]:
    """The extras that a module of envport asks for where they are missing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "MissingExtra":
            yield from (it.value for it in node.args[1:] if isinstance(it, ast.Constant) and isinstance(it.value, str))
