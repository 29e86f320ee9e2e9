"""A fingerprint of the Python source that an environment is made of."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType

__all__ = ["source_fingerprint"]

_OURS = "envport"


def source_fingerprint(*parts: object) -> str | None:
    """SHA-256 of the source of the modules of classes and functions.

    These are the modules that define the parts and the bases of classes, and the modules of the same packages that
    these import at the top, directly or through each other. Python and envport itself are left out. What a function
    imports when it is called, data files and other packages do not count.

    Args:
        parts: Classes and functions.

    Returns:
        The fingerprint, which does not depend on where the files are; `None` if one of the modules has no source.
    """
    waiting = {module for part in parts for module in _defining(part)}
    packages = {_package(module.__name__) for module in waiting}
    sources: dict[str, bytes] = {}
    seen = set(waiting)
    while waiting:
        module = waiting.pop()
        source = _source(module)
        if source is None:
            return None
        sources[_stable_name(module)] = source
        imported = {sys.modules[name] for name in _imports(source, module) if name in sys.modules}
        new = {one for one in imported if one not in seen and _package(one.__name__) in packages}
        seen |= new
        waiting |= new
    return _digest(sources) if sources else None


def _digest(sources: dict[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name, source in sorted(sources.items()):
        whole.update(f"{name} {hashlib.sha256(source).hexdigest()}\n".encode())
    return whole.hexdigest()


def _defining(part: object) -> Iterator[ModuleType]:
    definers: Iterable[object] = inspect.getmro(part) if isinstance(part, type) else (part,)
    for one in definers:
        name: str = getattr(one, "__module__", None) or ""
        if name in sys.modules and _package(name) != _OURS and _package(name) not in sys.stdlib_module_names:
            yield sys.modules[name]


def _source(module: ModuleType) -> bytes | None:
    try:
        file = inspect.getsourcefile(module)
    except TypeError:
        return None
    if file is None or not Path(file).is_file():
        return None
    # Git may have given the same file other ends of lines.
    return Path(file).read_bytes().replace(b"\r\n", b"\n")


def _imports(source: bytes, module: ModuleType) -> Iterator[str]:
    """The names of the modules that a module imports at its top."""
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), module.__package__)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            waiting += ast.iter_child_nodes(node)


def _package(name: str) -> str:
    return name.partition(".")[0]


def _stable_name(module: ModuleType) -> str:
    """The module's name, or that of its file where the module could be named after the path."""
    return module.__name__ if "." in module.__name__ else Path(str(module.__file__)).name
